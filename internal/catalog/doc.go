// Package catalog knows the tools of every configured server, and the names of
// its resources and prompts, without keeping the servers running. Each server is
// listed once, stored, and listed again when something says that the list is
// old: its definition, a notice of the server, its age. Whoever starts a server
// for another reason gives its list to the catalog for nothing.
//
// What is known lies in the state directory, one file for each definition, and
// is shared by all Sallyports of the user; only one of them lists a server at a
// time. It is read when somebody asks and dropped from memory again when nobody
// has for a while. Everything in it is the servers' word.
package catalog

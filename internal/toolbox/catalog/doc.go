// Package catalog knows the tools of every configured server, and the names of
// its resources and prompts, without keeping the servers running. Each server is
// listed once, stored, and listed again when the list may be outdated: its
// definition has changed, the server sent a notification, or the list is old. When
// a server is started for another reason, the catalog gets its list for free.
//
// The lists are in the state directory, one file for each definition, and shared
// by all Sallyports of the user; only one of them lists a server at a time. They
// are read on demand and dropped from memory after some time without use.
// The types of results are learned from calls, for tools that do not declare them.
// Everything stored comes from servers and is untrusted.
package catalog

// Package instancedir gives each program that shares a runtime directory an
// instance directory in it. The program holds a lock file there for as long as
// it lives, however that ends, and records what its runs may leave on the host.
// A directory whose lock is free belongs to a dead program: the next program
// removes it together with what its records describe.
package instancedir

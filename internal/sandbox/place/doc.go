// Package place keeps the places of programs in a runtime directory: a directory
// each, with a lock file that its program holds for as long as it lives, however
// that ends. A place whose lock can be had belongs to a program that is dead, and
// is swept.
package place

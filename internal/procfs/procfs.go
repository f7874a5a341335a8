// Package procfs ends the program with an explanation where /proc is missing.
// Importing it is all that it takes.
//
// gVisor's packages read a file below /proc when they are initialised, and panic
// without it, before main could explain anything. This package is initialised
// before them: Go takes the packages that are ready in the order of their paths,
// and gVisor's need "time" and "os", which come after a path that begins with
// "sallyport". Therefore this package may import nothing but syscall.
package procfs

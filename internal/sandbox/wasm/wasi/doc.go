// Package wasi is the host that a WebAssembly instance of the engine sees: the part
// of WASI preview 1 that CPython needs, and nothing of the machine. Files are in
// memory (package memfs), clocks and random numbers are the machine's, descriptors 0
// to 2 are the channel to the engine. There are no sockets, no processes and no files
// of the host.
//
// Everything that comes from the instance is hostile: pointers, lengths, descriptors,
// paths and flags are checked against the instance's memory and tables.
package wasi

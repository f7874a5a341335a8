// Package memfs is the file system of one session in memory. It has a read-only part
// that sessions share, and three writable trees with quotas: /workspace, /tmp and
// /packages. Nothing in it leads to a file of the host.
//
// Names, sizes and offsets come from hostile code. Everything is bounded: the bytes of
// each tree, the memory of all of them together, the number of entries, the lengths of
// names and paths, and the links that a walk follows.
package memfs

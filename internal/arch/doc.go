// Package arch holds no code: its tests keep the shape of the others. They
// read the source, so they see every platform's files and need no build.
package arch

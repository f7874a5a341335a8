// Package machine runs CPython sessions in WebAssembly. A [Machine] holds the compiled
// interpreter, an [Image] the memory of an interpreter that has loaded a program, and a
// [Session] is one interpreter that began as a copy of the image: it shares the pages
// that it does not write to.
//
// Each session has a goroutine, and no other touches its memory. While Python runs,
// the goroutine stays on its thread, so that the kernel counts the session's time. The
// interpreter calls the host in all its loops, because neither the scheduler nor the
// garbage collector of Go can stop compiled WebAssembly: in those calls a session yields
// to others, and is interrupted, paused, slowed and ended.
//
// When the program has nothing to do it returns, and says when it wants to be called
// again. Such a session has no WebAssembly stack, so its memory, its globals and its
// descriptors are its whole state: that is what a snapshot holds.
package machine

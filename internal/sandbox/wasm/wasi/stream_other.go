//go:build !unix

package wasi

// readFD fails: there is no channel on this system yet.
func readFD(int, []byte) (int, Errno) { return 0, errIO }

// writeFD fails: there is no channel on this system yet.
func writeFD(int, []byte) (int, Errno) { return 0, errIO }

package cli

import "golang.org/x/sys/unix"

// discard drops what was typed and not read.
func (k *keyboard) discard() {
	const read = 1 // FREAD
	_ = unix.IoctlSetPointerInt(int(k.f.Fd()), unix.TIOCFLUSH, read)
}

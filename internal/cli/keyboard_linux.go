package cli

import "golang.org/x/sys/unix"

// discard drops what was typed and not read.
func (k *keyboard) discard() { _ = unix.IoctlSetInt(int(k.f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }

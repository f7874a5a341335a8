package hardware

import "golang.org/x/sys/unix"

// native asks the system for what Linux has in files.
func native() (model string, memory int64) {
	model, _ = unix.Sysctl("machdep.cpu.brand_string")
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		memory = int64(n)
	}
	return model, memory
}

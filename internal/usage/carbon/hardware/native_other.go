//go:build !darwin && !windows

package hardware

// native is for systems without files that say it; Linux has them.
func native() (model string, memory int64) { return "", 0 }

//go:build !linux

package executable

func mapped() (unmap func()) { return func() {} }

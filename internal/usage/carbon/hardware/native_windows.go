package hardware

import "golang.org/x/sys/windows/registry"

// native asks the system for what Linux has in files. How much memory there is
// no figure needs.
func native() (model string, memory int64) {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, `HARDWARE\DESCRIPTION\System\CentralProcessor\0`, registry.QUERY_VALUE)
	if err != nil {
		return "", 0
	}
	defer k.Close()
	model, _, _ = k.GetStringValue("ProcessorNameString")
	return model, 0
}

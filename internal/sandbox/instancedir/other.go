//go:build !unix

package instancedir

// Left returns the directories of dead programs below runtimeDir.
func Left(runtimeDir string) []string { return nil }

package completion

import (
	"embed"
	"path"
	"slices"
)

// Shells returns the shells that have a script.
func Shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

//go:embed scripts
var scripts embed.FS

// Script returns the script of a shell.
func Script(shell string) (string, bool) {
	if !slices.Contains(Shells(), shell) {
		return "", false
	}
	b, err := scripts.ReadFile(path.Join("scripts", "sallyport."+shell))
	return string(b), err == nil
}

package terminal

import "strings"

// ShellWord quotes a word of a command for a shell, if it needs quotes.
func ShellWord(s string) string {
	special := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./@:", r))
	}
	if s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

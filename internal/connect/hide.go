package connect

import (
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

const hidden = "***"

var (
	// named matches a member whose name says that its value is a secret.
	named = lazyregexp.New(`(?i)((?:token|secret|passw|pwd|key|auth|credential|cookie|bearer)[\w-]*["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}\]]+)`)
	// random matches what only a generator writes.
	random = lazyregexp.New(`[A-Za-z0-9_+=-]*[0-9][A-Za-z0-9_+=-]*`)
)

// Hide returns a function that removes secrets from a line of a client's file:
// the values that its definitions hold, and what looks like one in the lines
// around them. Parts of the path self are none.
func Hide(defs []definitions.Definition, self string) func(string) string {
	return func(line string) string {
		for _, d := range defs {
			line = d.Redact(line)
		}
		line = named().ReplaceAllStringFunc(line, func(s string) string {
			m := named().FindStringSubmatch(s)
			if v := strings.Trim(m[2], `"'`); strings.HasPrefix(v, "$") || v == "true" || v == "false" || strings.HasPrefix(m[2], "{") || strings.HasPrefix(m[2], "[") {
				return s
			}
			return m[1] + `"` + hidden + `"`
		})
		return random().ReplaceAllStringFunc(line, func(s string) string {
			if len(s) < 24 || strings.Contains(self, s) {
				return s
			}
			return hidden
		})
	}
}

package connect

import (
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	hidden = "<hidden>"

	secret = `(?:token|secret|passw|pwd|key|auth|credential|cookie|bearer|connection-?string|pat\b)[\w-]*["']?`
	quoted = `"(?:[^"\\]|\\.)*"|'[^']*'`
)

var (
	// named matches a member whose name says that its value is a secret, and an
	// option with its value.
	named = lazyregexp.New(`(?i)(` + secret + `\s*[:=]\s*|["']--?[\w-]*` + secret + `\s*,\s*)(` + quoted + `|[^\s,}\]"'&]+)`)
	// announced matches an option whose value is on the next line, and value the
	// first text of that line.
	announced = lazyregexp.New(`(?i)["']--?[\w-]*` + secret + `\s*,\s*$`)
	value     = lazyregexp.New(quoted)
	// assigned matches a variable that an argument sets, and scheme what follows the
	// name of an authentication scheme.
	assigned = lazyregexp.New(`(["'][A-Z_][A-Z0-9_]*=)[^"'$<]+`)
	scheme   = lazyregexp.New(`(?i)(\bbearer +)[^\s"'$<,]+`)
	// userinfo matches the password in a URL.
	userinfo = lazyregexp.New(`(://[^/\s:@"']*:)[^/\s@"']+@`)
	// random matches what only a generator writes.
	random = lazyregexp.New(`[A-Za-z0-9_+=-]*[0-9][A-Za-z0-9_+=-]*`)
)

// Hide returns a function that removes secrets from the lines of the file, in their
// order: the values that its definitions hold, other variables and headers, and what
// looks like a secret in the lines around them. Parts of this program's path are none.
func (k Kept) Hide() func(string) string {
	var hiders []func(string) string
	for _, d := range k.Servers {
		hiders = append(hiders, d.Hider(hidden))
	}
	if root, err := edit.Get(k.Target.Format, k.Content, edit.At()); err == nil {
		hiders = append(hiders, strings.NewReplacer(variables(root, false)...).Replace)
	}
	next := false // the line before announced a secret
	return func(line string) string {
		for _, hide := range hiders {
			line = hide(line)
		}
		if at := value().FindStringIndex(line); next && at != nil && !strings.HasPrefix(line[at[0]+1:], "$") {
			line = line[:at[0]+1] + hidden + line[at[1]-1:]
		}
		next = announced().MatchString(line)
		line = assigned().ReplaceAllString(line, "${1}"+hidden)
		line = scheme().ReplaceAllString(line, "${1}"+hidden)
		line = userinfo().ReplaceAllString(line, "${1}"+hidden+"@")
		line = named().ReplaceAllStringFunc(line, func(s string) string {
			m := named().FindStringSubmatch(s)
			v := strings.Trim(m[2], `"'`)
			if strings.HasPrefix(v, "$") || v == "true" || v == "false" || strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[") {
				return s
			}
			quote := m[2][:len(m[2])-len(strings.TrimLeft(m[2], `"'`))]
			if len(quote) > 1 {
				return s // an empty text
			}
			return m[1] + quote + hidden + quote
		})
		return random().ReplaceAllStringFunc(line, func(s string) string {
			if len(s) < 24 || strings.Contains(k.self, s) {
				return s
			}
			return hidden
		})
	}
}

// variables returns the values of variables and headers wherever they are in a
// file, as pairs for a replacer: also those of a definition that is not valid, or
// of another folder.
func variables(v any, secret bool) (pairs []string) {
	const shortest = 4 // shorter ones are everywhere
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			pairs = append(pairs, variables(value, secret || slices.Contains(environments, key) || key == "headers")...)
		}
	case []any:
		for _, item := range v {
			pairs = append(pairs, variables(item, secret)...)
		}
	case string:
		if secret && len(v) >= shortest && v != "true" && v != "false" && !strings.HasPrefix(v, "$") {
			return []string{v, hidden}
		}
	}
	return pairs
}

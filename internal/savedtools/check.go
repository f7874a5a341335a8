package savedtools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/store/keyed"
)

// keywords are Python's, which no function is named.
var keywords = []string{
	"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
	"else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or",
	"pass", "raise", "return", "try", "while", "with", "yield",
}

// isName reports whether a tool can have the name: an identifier, and not one
// that Python itself uses in modules.
func isName(name string) bool {
	if name == "" || len(name) > MaxName || strings.HasPrefix(name, "__") || slices.Contains(keywords, name) {
		return false
	}
	for i, r := range name {
		switch {
		case r == utf8.RuneError:
			return false
		case r == '_', unicode.IsLetter(r):
		case i > 0 && (unicode.IsDigit(r) || unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Mc, r)):
		default:
			return false
		}
	}
	return true
}

// check returns an error if a version exceeds the bounds.
func check(name string, v *Version) error {
	if !isName(name) {
		return fmt.Errorf("%w: %.120q is not the name of a function", ErrInvalid, name)
	}
	if v.Version < 1 || v.Version > 1<<31-1 {
		return fmt.Errorf("%w: %s: version %d", ErrInvalid, name, v.Version)
	}
	for _, f := range []struct {
		what, text string
		most       int
	}{
		{"source", v.Source, MaxSource}, {"doc", v.Doc, MaxDoc}, {"signature", v.Signature, MaxSignature},
		{"schema", string(v.Schema), MaxSchema}, {"saved_at", v.SavedAt, maxShort}, {"python", v.Python, maxShort},
	} {
		if len(f.text) > f.most {
			return fmt.Errorf("%w: the %s of %s takes %d bytes, of at most %d", keyed.ErrLimit, f.what, name, len(f.text), f.most)
		}
		if !utf8.ValidString(f.text) || strings.ContainsRune(f.text, 0) {
			return fmt.Errorf("%w: the %s of %s is not text", ErrInvalid, f.what, name)
		}
	}
	for _, line := range []string{v.Signature, v.SavedAt, v.Python} {
		if strings.ContainsFunc(line, unicode.IsControl) {
			return fmt.Errorf("%w: signature, saved_at and python of %s are single lines", ErrInvalid, name)
		}
	}
	if strings.TrimSpace(v.Source) == "" {
		return fmt.Errorf("%w: %s has no source", ErrInvalid, name)
	}
	if len(v.Servers) > MaxServers {
		return fmt.Errorf("%w: %s calls %d servers, of at most %d", keyed.ErrLimit, name, len(v.Servers), MaxServers)
	}
	for _, alias := range v.Servers {
		if !isAlias(alias) {
			return fmt.Errorf("%w: %s: %.120q is not a server's identifier", ErrInvalid, name, alias)
		}
	}
	if len(v.Schema) > 0 && (!json.Valid(v.Schema) || bytes.TrimLeft(v.Schema, " \t\r\n")[0] != '{') {
		return fmt.Errorf("%w: the schema of %s is not an object", ErrInvalid, name)
	}
	return nil
}

func isAlias(alias string) bool {
	if alias == "" || len(alias) > MaxName {
		return false
	}
	return !strings.ContainsFunc(alias, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// checkTool returns an error if a tool that was read exceeds the bounds.
func checkTool(t *Tool) error {
	if len(t.Versions) == 0 {
		return fmt.Errorf("%w: %.120q has no version", ErrInvalid, t.Name)
	}
	last := 0
	for i := range t.Versions {
		v := &t.Versions[i]
		if err := check(t.Name, v); err != nil {
			return err
		}
		if v.Version <= last {
			return fmt.Errorf("%w: the versions of %s are not in order", ErrInvalid, t.Name)
		}
		last = v.Version
	}
	return nil
}

package settings

import (
	"errors"
	"strings"
)

// shown replaces a secret wherever values are printed.
const shown = "(not shown)"

// secretValue is a string that is never shown, neither in a listing nor in an
// error. It is the secret itself, or a reference to where it is.
type secretValue struct{ field *string }

func secret(field *string) *secretValue { return &secretValue{field} }

// isReference reports whether a value names the place of a secret, instead of
// being one.
func isReference(text string) bool {
	return strings.HasPrefix(text, "file:/") || strings.HasPrefix(text, "keyring:")
}

func (v *secretValue) set(text string, _ place) error {
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return errors.New("it has a control character, such as the end of a line")
		}
	}
	if text != strings.TrimSpace(text) {
		return errors.New("it begins or ends with a space")
	}
	*v.field = text
	return nil
}

func (v *secretValue) text() string {
	switch {
	case *v.field == "", isReference(*v.field):
		return *v.field
	}
	return shown
}

func (v *secretValue) data() any      { return v.text() }
func (v *secretValue) takes() form    { return asText }
func (v *secretValue) kind() string   { return "secret" }
func (v *secretValue) bounds() string { return "the secret itself, `file:/PATH` or `keyring:NAME`" }

package app

import (
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

// TestProfileFloor: a file that becomes weaker does not undo what a variable asks for.
func TestProfileFloor(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry settings.Entry
		want  string
	}{
		{"the file alone", settings.Entry{Value: "locked", Origin: settings.Origin{Layer: settings.LayerFile}}, ""},
		{"a variable", settings.Entry{Value: "careful", Origin: settings.Origin{Layer: settings.LayerEnvironment}}, "careful"},
		{"a variable below the file", settings.Entry{Value: "locked", Origin: settings.Origin{Layer: settings.LayerFile}, Ignored: []settings.Ignored{{Value: "careful"}, {Value: "open"}}}, "careful"},
		{"a flag above a variable", settings.Entry{Value: "locked", Origin: settings.Origin{Layer: settings.LayerFlag}, Ignored: []settings.Ignored{{Value: "open"}}}, "locked"},
	} {
		if got := profileFloor(c.entry); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

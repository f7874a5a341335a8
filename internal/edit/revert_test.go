package edit_test

import (
	"errors"
	"testing"

	"github.com/sallyport/sallyport/internal/edit"
)

// TestRevert: what changed elsewhere stays, what the change made goes.
func TestRevert(t *testing.T) {
	for _, tt := range []struct {
		name               string
		format             edit.Format
		before, after, now string
		want               string // empty: an ErrConflict
	}{
		{"a member added", edit.JSON, `{"a": 1}`, `{"a": 1, "b": 2}`, `{"a": 9, "b": 2}`, `{"a": 9}`},
		{"a member changed", edit.JSON, `{"a": {"x": 1}}`, `{"a": {"x": 2}}`, `{"a": {"y": 3, "x": 2}}`, `{"a": {"y": 3, "x": 1}}`},
		{"a member removed", edit.JSON, `{"a": {"z": 1, "b": ["s"]}, "c": 1}`, `{"c": 1}`, `{"c": 2}`, `{"c": 2, "a": {"z": 1, "b": ["s"]}}`},
		{"an object of its own", edit.JSON, `{}`, `{"m": {"s": {"a": 1}}}`, `{"m": {"s": {"a": 1}}, "x": 1}`, `{ "x": 1}`},
		{"an object with more", edit.JSON, `{}`, `{"m": {"s": {"a": 1}}}`, `{"m": {"s": {"a": 1}, "t": 2}}`, `{"m": { "t": 2}}`},
		{"reverted already", edit.JSON, `{"a": 1}`, `{"a": 2}`, `{"a": 1, "b": 1}`, `{"a": 1, "b": 1}`},
		{"comments", edit.JSONC, "{}", `{"a": 1}`, "{\n  // mine\n  \"b\": 2,\n  \"a\": 1,\n}\n", "{\n  // mine\n  \"b\": 2\n}\n"},
		{"changed again", edit.JSON, `{"a": 1}`, `{"a": 2}`, `{"a": 3}`, ""},
		{"gone", edit.JSON, `{"a": {"x": 1}}`, `{"a": {"x": 2}}`, `{}`, ""},
		{"a list in between", edit.JSON, `{"a": {"x": 1}}`, `{"a": {"x": 2}}`, `{"a": [{"name": "x"}]}`, ""},
		{"TOML", edit.TOML, "[m.a]\ncommand = \"c\"\nargs = [\"x\"]\n", "[m.a]\ncommand = \"c\"\nargs = [\"x\"]\nenabled = false\n", "# mine\n[m.a]\ncommand = \"c\"\nargs = [\"x\"]\nenabled = false\n\n[m.b]\ncommand = \"d\"\n", "# mine\n[m.a]\ncommand = \"c\"\nargs = [\"x\"]\n\n[m.b]\ncommand = \"d\"\n"},
		{"TOML, a table removed", edit.TOML, "[m.a]\ncommand = \"c\"\nargs = [\"x\"]\n", "", "x = 1\n", "x = 1\n\n[m.a]\nargs = [\"x\"]\ncommand = \"c\"\n"},
		{"YAML, by name", edit.YAML, "m:\n  - name: a\n    command: c\n", "m:\n  - name: a\n    command: c\n  - name: s\n    command: d\n", "m:\n  - name: a\n    command: e\n  - name: s\n    command: d\n", "m:\n  - name: a\n    command: e\n"},
		{"broken", edit.JSON, `{}`, `{"a": 1}`, `{"a": 1`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := edit.Revert(tt.format, []byte(tt.now), []byte(tt.before), []byte(tt.after))
			switch {
			case tt.want == "" && tt.name == "broken":
				if err == nil {
					t.Errorf("got %q, want an error", got)
				}
			case tt.want == "":
				if !errors.Is(err, edit.ErrConflict) {
					t.Errorf("got %q, %v, want an ErrConflict", got, err)
				}
			case err != nil || string(got) != tt.want:
				t.Errorf("got %v\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
}

package cli

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestEveryCommandHasAnExample walks the whole command line.
func TestEveryCommandHasAnExample(t *testing.T) {
	parser, err := newParser(&grammar{}, Stdio{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, c := range n.Children {
			seen++
			_, examples, found := strings.Cut(c.Detail, "Example")
			if !found || !strings.Contains(examples, "\n  ") {
				t.Errorf("%s --help has no example; got %q", c.FullPath(), c.Detail)
			}
			walk(c)
		}
	}
	walk(parser.Model.Node)
	if seen < 50 {
		t.Errorf("walked %d commands, want all, which are more than 50", seen)
	}
}

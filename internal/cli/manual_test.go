package cli

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

// TestManPages: there is a page for each command, the same every time, and the
// programs that show pages find nothing wrong.
func TestManPages(t *testing.T) {
	pages, err := ManPages("1.2.3", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ManPages("1.2.3", time.Unix(0, 0)); err != nil || !maps.Equal(pages, again) {
		t.Errorf("the pages differ (%v)", err)
	}
	parser, err := newParser(&grammar{}, Stdio{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	count := 1
	var walk func(prefix string, n *kong.Node)
	walk = func(prefix string, n *kong.Node) {
		for _, c := range n.Children {
			if c.Hidden {
				continue
			}
			count++
			if pages[prefix+"-"+c.Name+".1"] == "" {
				t.Errorf("no page %s-%s.1", prefix, c.Name)
			}
			walk(prefix+"-"+c.Name, c)
		}
	}
	walk("sallyport", parser.Model.Node)
	if pages["sallyport.1"] == "" || len(pages) != count {
		t.Errorf("got %d pages, want sallyport.1 and one for each command, %d in all", len(pages), count)
	}

	dir := t.TempDir()
	var files []string
	for name, page := range pages {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, args := range [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"groff", "-man", "-Tutf8", "-ww", "-z"}} {
		path, err := exec.LookPath(args[0])
		if err != nil {
			t.Log(err)
			continue
		}
		if out, err := exec.Command(path, append(args[1:], files...)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}

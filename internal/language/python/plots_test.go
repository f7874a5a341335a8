//go:build unix

package python_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

// TestPictures: what code shows becomes a file, once, and what it does not show
// does not. It needs an interpreter with matplotlib and Pillow (-python).
func TestPictures(t *testing.T) {
	p := launch(t)
	if r := p.exec(t, "import matplotlib, PIL"); r.Status != wire.StatusOK {
		t.Skip("this interpreter has no matplotlib")
	}
	tests := []struct{ name, code, files string }{
		{"show", "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()", "figure-1.png"},
		{"show again shows nothing", "plt.show()", ""},
		{"two figures", "plt.figure(); plt.figure(); plt.show()", "figure-2.png figure-3.png"},
		{"figure last", "fig, ax = plt.subplots()\nfig", "figure-4.png"},
		{"shown once", "plt.show()", ""},
		{"axes last", "fig, ax = plt.subplots()\nax", "figure-5.png"},
		{"lines last", "plt.plot([1, 3])", "figure-6.png"},
		{"imported function", "from matplotlib.pyplot import show\nplt.bar([1], [2]); show(block=False)", "figure-7.png"},
		{"show of a figure", "fig, ax = plt.subplots()\nfig.show(); plt.close('all')", "figure-8.png"},
		{"without pyplot", "from matplotlib.figure import Figure\nf = Figure()\nf.subplots().plot([1])\nf", "figure-9.png"},
		{"saved by the code", "plt.plot([1]); plt.savefig('mine.png'); plt.close()", "mine.png"},
		{"backend chosen", "import matplotlib\nmatplotlib.use('Agg')\nplt.plot([1]); plt.show()", "figure-10.png"},
		{"elsewhere", "import os\nos.mkdir('d'); os.chdir('d'); plt.plot([1]); plt.show(); os.chdir('..')", "figure-11.png"},
		{"not last", "fig, ax = plt.subplots()\n5", ""},
		{"another's figure", "class A: figure = 5\nA();", ""},
		{"image last", "from PIL import Image\ni = Image.new('RGB', (8, 8))\ni", "figure-12.png"},
		{"image shown", "i.show()", "figure-13.png"},
		{"list of others", "[1, 2]", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.exec(t, tt.code)
			var files []string
			for _, a := range r.Artifacts {
				files = append(files, a.Path)
			}
			if got := strings.Join(files, " "); got != tt.files || r.Status != wire.StatusOK || r.stderr != "" {
				t.Errorf("files %q, want %q; %s %s", got, tt.files, r.Status, r.stderr)
			}
		})
	}
}

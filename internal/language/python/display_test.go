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
		{"left open", "fig, ax = plt.subplots()\n5", "figure-12.png"},
		{"left open, and saved", "plt.plot([1]); plt.savefig('open.png')", "open.png"},
		{"changed after it was saved", "plt.plot([1]); plt.savefig('early.png'); plt.title('late')\n0", "early.png figure-13.png"},
		{"left open and empty", "f = plt.figure()", ""},
		{"left open by an error", "plt.plot([1])\ntry:\n    1/0\nfinally:\n    plt.title('x')", "figure-14.png"},
		{"saved and last", "fig, ax = plt.subplots()\nfig.savefig('last.png')\nfig", "last.png"},
		{"a grid of axes", "fig, axes = plt.subplots(2, 2)\naxes", "figure-15.png"},
		{"displayed", "fig, ax = plt.subplots()\ndisplay(fig, 5)", "figure-16.png"},
		{"a method for PNG", "class P:\n    def _repr_png_(self): return b'png'\nP()", "figure-17.png"},
		{"a method for SVG", "class S:\n    def _repr_svg_(self): return '<svg/>'\nS()", "figure-18.svg"},
		{"a method for HTML", "class H:\n    def _repr_html_(self): return '<b>x</b>'\nH()", "figure-19.html"},
		{"a method for HTML, and a repr", "class H:\n    def _repr_html_(self): return '<b>x</b>'\n    def __repr__(self): return 'H'\nH()", ""},
		{"a bundle", "class B:\n    def _repr_mimebundle_(self, include, exclude): return {'image/png': 'cG5n', 'text/html': 'x'}, {}\nB()", "figure-20.png"},
		{"a class with a method", "P", ""},
		{"another's figure", "class A: figure = 5\nA();", ""},
		{"image last", "from PIL import Image\ni = Image.new('RGB', (8, 8))\ni", "figure-21.png"},
		{"image shown", "i.show()", "figure-22.png"},
		{"list of others", "[1, 2]", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.exec(t, tt.code)
			var files []string
			for _, a := range r.Artifacts {
				files = append(files, a.Path)
			}
			if got := strings.Join(files, " "); got != tt.files || (r.Status != wire.StatusOK || r.stderr != "") && tt.name != "left open by an error" {
				t.Errorf("files %q, want %q; %s %s", got, tt.files, r.Status, r.stderr)
			}
		})
	}
}

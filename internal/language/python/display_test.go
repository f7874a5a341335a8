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
		{"changed after it was saved", "plt.plot([1]); plt.savefig('early.png'); plt.title('late')\n0", "early.png figure-13.png: late"},
		{"left open and empty", "f = plt.figure()", ""},
		{"left open by an error", "plt.plot([1])\ntry:\n    1/0\nfinally:\n    plt.title('x')", "figure-14.png: x"},
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
		{"titles", "f, (a, b) = plt.subplots(2)\na.set_title('Sales\\nper month'); b.set_title('Cost'); f.savefig('t.png')\nf", "t.png: Sales per month; Cost"},
		{"a title of the whole", "f, a = plt.subplots()\na.set_title('Sales'); f.suptitle('Report')\nf", "figure-23.png: Report"},
		{"of an earlier execution", "fig, ax = plt.subplots()\nax.plot([1]);", "figure-24.png"},
		{"shown again", "fig", "figure-25.png"},
		{"saved and shown", "plt.plot([1]); plt.savefig('both.png'); plt.show()", "both.png"},
		{"saved elsewhere", "plt.plot([1]); plt.savefig('/tmp/far.png')", "figure-26.png"},
		{"saved as no picture", "plt.plot([1]); plt.savefig('a.pdf'); plt.show()", "figure-27.png a.pdf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.exec(t, tt.code)
			var files []string
			for _, a := range r.Artifacts {
				if a.About != "" {
					a.Path += ": " + a.About
				}
				files = append(files, a.Path)
			}
			if got := strings.Join(files, " "); got != tt.files || (r.Status != wire.StatusOK || r.stderr != "") && tt.name != "left open by an error" {
				t.Errorf("files %q, want %q; %s %s", got, tt.files, r.Status, r.stderr)
			}
		})
	}
}

// TestToolPictures: what a tool answers is shown where a figure would be, with its
// name, in the order in which it is shown.
func TestToolPictures(t *testing.T) {
	const gif = "R0lGODlhBQAGAAAA" // 5×6, as far as anyone reads
	const shot = `{"content":[{"type":"text","text":"The page"},{"type":"image","mimeType":"image/png","data":"` + gif + `"}]}`
	tests := []struct{ name, code, files, stdout string }{
		{"last", "x = await shoot()\nx", "say-1.gif: mcp_my_echo.say, image/gif 5×6", "[{'type': 'text', 'text': 'The page'}, <image image/png 5×6, 12 bytes: .save(path), .data>]\n"},
		{"not shown", "z = await shoot()", "", ""},
		{"again", "x[1]", "say-1.gif: mcp_my_echo.say, image/gif 5×6", "<image image/png 5×6, 12 bytes: .save(path), .data>\n"},
		{"in a dict, and twice", "display(x)\n{'a': (1, x)}", "say-1.gif: mcp_my_echo.say, image/gif 5×6", ""},
		{"among others", "class P:\n    def _repr_png_(self): return b'png'\ndisplay(P())\ny = await shoot()\ndisplay(y)\nopen('a.txt', 'w').close(); open('0.PNG', 'w').close()\nP()",
			"figure-1.png say-2.gif: mcp_my_echo.say, image/gif 5×6 0.PNG figure-2.png a.txt", ""},
		{"raw", "(await runtime.call_tool('my-echo', 'say', {'result': shot}))['content'][1:]", "say-3.gif: mcp_my_echo.say, image/gif 5×6", "[<image image/png 5×6, 12 bytes: .save(path), .data>]\n"},
	}
	p := launch(t)
	if r := p.run(t, wire.Exec{Code: "import json\nshot = json.loads('" + shot + "')\nasync def shoot(): return await mcp_my_echo.say(result=shot)",
		Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, say); r.err != nil || r.stderr != "" {
		t.Fatal(r.err, r.stderr)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := p.run(t, wire.Exec{Code: tt.code, Grants: []string{"my-echo"}}, say)
			var files []string
			for _, a := range r.Artifacts {
				if a.About != "" {
					a.Path += ": " + a.About
				}
				files = append(files, a.Path)
			}
			if got := strings.Join(files, " "); got != tt.files || r.err != nil || r.stderr != "" || tt.stdout != "" && r.stdout != tt.stdout {
				t.Errorf("files %q, want %q; %v, stdout %q, want %q; stderr %q", got, tt.files, r.err, r.stdout, tt.stdout, r.stderr)
			}
		})
	}
}

//go:build unix

package broker

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestFilesInAndOut(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // more than one frame
	r := b.Execute(t.Context(), Request{
		Principal: user,
		Submission: Submission{
			Code: "import os, stat\n" +
				"print(open('a/b/c.txt').read(), len(open('large', 'rb').read()), oct(stat.S_IMODE(os.stat('run.sh').st_mode)), os.path.getsize('empty'))\n" +
				"open('plot.PNG', 'wb').write(" + pyBytes(png) + "); open('no.png', 'w').write('text'); open('d.csv', 'w').write('1')\n" +
				"os.symlink('/etc/passwd', 'link.png'); _ = None",
			Files: []sandbox.File{
				{Path: "a/b/c.txt", Data: []byte("c")}, {Path: "a/d.txt", Data: []byte("d")}, {Path: "large", Data: large},
				{Path: "run.sh", Data: []byte("#"), Mode: 0o755}, {Path: "empty"},
			},
		},
	})
	want(t, r, Success, 0, "c 2097152 0o755 0")
	if len(r.Images) != 1 || r.Images[0].Path != "plot.PNG" || !bytes.Equal(r.Images[0].Data, png) {
		t.Errorf("pictures %+v", r.Images)
	}
	var left []string
	for _, a := range r.Artifacts {
		left = append(left, a.Path)
	}
	if got := strings.Join(left, " "); got != "plot.PNG no.png d.csv" {
		t.Errorf("artifacts %s: what the host put there is none", got)
	}
	if r.MorePictures() != "" {
		t.Errorf("more pictures: %s", r.MorePictures())
	}
	many := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "import os\nfor i in range(11, 0, -1):\n    open(f'{i}.png', 'wb').write(" + pyBytes(png) + "); os.utime(f'{i}.png', (99 - i, 99 - i))\n" +
		"open('large.gif', 'wb').truncate(3 << 20)"}})
	var names []string
	for _, i := range many.Images {
		names = append(names, i.Name())
	}
	const shown, more = "11.png 10.png 9.png 8.png 7.png 6.png 5.png 4.png", "4 more not shown: 3.png, 2.png, 1.png, large.gif (larger than 2 MB). An answer has up to 8 pictures;"
	if got := strings.Join(names, " "); got != shown || !strings.HasPrefix(many.MorePictures(), more) {
		t.Errorf("pictures %s, want %s; %s, want %s", got, shown, many.MorePictures(), more)
	}
	broken := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "open('cut.png', 'wb').write(" + pyBytes(png[:40]) + ") and None"}})
	if got, want := broken.MorePictures(), "1 not shown: cut.png (incomplete)"; len(broken.Images) != 0 || got != want {
		t.Errorf("%d pictures and %q, want %q", len(broken.Images), got, want)
	}
	if r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "import pathlib; pathlib.Path('2.png').touch()"}}); len(r.Images) != 1 || r.Images[0].Path != "2.png" {
		t.Errorf("touched: %+v", r.Images)
	}
	taken := map[string][]byte{}
	take := func(path string) (io.Writer, func(bool) error, error) {
		var w bytes.Buffer
		return &w, func(whole bool) error {
			if whole {
				taken[path] = w.Bytes()
			}
			return nil
		}, nil
	}
	r = b.Execute(t.Context(), Request{Principal: user, TakeFiles: take, Submission: Submission{Code: "open('e.bin', 'wb').write(open('large', 'rb').read()) and None"}})
	if len(taken) != 1 || !bytes.Equal(taken["e.bin"], large) || r.NotTaken {
		t.Errorf("files out: %d, %v", len(taken), r.Notes)
	}
	// A file that its owner makes larger after the end, while 900 others are
	// fetched, is left out, and that is said; so is what is more than is told of.
	clear(taken)
	r = b.Execute(t.Context(), Request{Principal: user, TakeFiles: take, Submission: Submission{Code: "import threading, time\nopen('grows', 'wb').close(); open('stays', 'w').write('1')\n" +
		"def grow():\n    while True:\n        with open('grows', 'ab') as f: f.write(b'x' * 1000)\n" +
		"threading.Thread(target=grow, daemon=True).start(); time.sleep(0.1)\n" +
		"for i in range(1100): open(f'{\"f\" if i < 900 else \"n\"}{i:04}', 'w').close()", Timeout: 2 * time.Minute}})
	if notes := strings.Join(r.Notes, "\n"); !r.NotTaken || string(taken["stays"]) != "" && taken["stays"] == nil ||
		!strings.Contains(notes, "grows: it is larger than it was") || !strings.Contains(notes, "more than 1000 files") || len(taken) != 999 {
		t.Errorf("%v, %d files, %s", r.NotTaken, len(taken), notes)
	}
	if len(r.Artifacts) != maxNamed {
		t.Errorf("%d are named, want %d", len(r.Artifacts), maxNamed)
	}
	// Files replace those that are there.
	r = b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "open('a/d.txt').read()", Files: []sandbox.File{{Path: "a/d.txt", Data: []byte("new")}}}})
	want(t, r, Success, 0, "'new'")
}

// A timeout that may not be had is not changed without a word.
func TestTimeoutNote(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	for _, tt := range []struct {
		asked time.Duration
		note  string
	}{
		{0, ""}, {30 * time.Second, ""}, {120 * time.Second, ""},
		{200 * time.Second, "a timeout of 200s was asked for; 120s is the most that is allowed (timeouts.max)"},
		{time.Millisecond, "a timeout of 0.001s was asked for; 1s is the least"},
	} {
		r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "1;", Timeout: tt.asked}})
		if got := strings.Join(r.Notes, "|"); got != tt.note || r.Status != Success {
			t.Errorf("%v: %q, %+v; want %q", tt.asked, got, r, tt.note)
		}
	}
}

// That a named session ends with the program is said once.
func TestUnkeptSessionNote(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil) // its engine cannot save sandboxes, and there is no directory
	for i, want := range []string{"session work ends with this program: there is no directory to keep it in (set stateDir, XDG_STATE_HOME, or HOME to a directory that exists)", ""} {
		r := b.Execute(t.Context(), Request{Principal: user, Session: "work", Submission: Submission{Code: "1;"}})
		if got := strings.Join(r.Notes, "|"); got != want {
			t.Errorf("call %d: %q, want %q", i+1, got, want)
		}
	}
	if r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "1;"}}); len(r.Notes) != 0 {
		t.Errorf("the unnamed session: %q", r.Notes)
	}
}

func pyBytes(b []byte) string {
	var s strings.Builder
	s.WriteString("bytes([")
	for i, c := range b {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(strings.TrimLeft(string(rune('0'+c/100))+string(rune('0'+c/10%10)), "0") + string(rune('0'+c%10)))
	}
	s.WriteString("])")
	return s.String()
}

//go:build unix

package broker

import (
	"bytes"
	"strings"
	"testing"

	"sallyport/internal/sandbox"
)

func TestFilesInAndOut(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // more than one frame
	r := b.Execute(t.Context(), Request{
		Code: "import os, stat\n" +
			"print(open('a/b/c.txt').read(), len(open('large', 'rb').read()), oct(stat.S_IMODE(os.stat('run.sh').st_mode)), os.path.getsize('empty'))\n" +
			"open('plot.PNG', 'wb').write(" + pyBytes(png) + "); open('no.png', 'w').write('text'); open('d.csv', 'w').write('1')\n" +
			"os.symlink('/etc/passwd', 'link.png'); _ = None",
		Files: []sandbox.File{
			{Path: "a/b/c.txt", Data: []byte("c")}, {Path: "a/d.txt", Data: []byte("d")}, {Path: "large", Data: large},
			{Path: "run.sh", Data: []byte("#"), Mode: 0o755}, {Path: "empty"},
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
	if got := strings.Join(left, " "); got != "d.csv no.png plot.PNG" {
		t.Errorf("artifacts %s: what the host put there is none", got)
	}
	if r.Files != nil {
		t.Error("files that nobody asked for")
	}

	r = b.Execute(t.Context(), Request{Code: "open('e.bin', 'wb').write(open('large', 'rb').read()) and None", TakeFiles: true})
	if len(r.Files) != 1 || r.Files[0].Path != "e.bin" || !bytes.Equal(r.Files[0].Data, large) {
		t.Errorf("files out: %d", len(r.Files))
	}
	// Files replace those that are there.
	r = b.Execute(t.Context(), Request{Code: "open('a/d.txt').read()", Files: []sandbox.File{{Path: "a/d.txt", Data: []byte("new")}}})
	want(t, r, Success, 0, "'new'")
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

package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readAll(r io.Reader, max int) (string, error) {
	reader := newEventReader(r, max)
	var b strings.Builder
	for {
		e, err := reader.next()
		if err != nil {
			return b.String(), err
		}
		fmt.Fprintf(&b, "[%s %q id=%q,%v retry=%d over=%v]", e.name, e.data, e.id, e.hasID, e.retry, e.overlong)
	}
}

func TestEvents(t *testing.T) {
	tests := []struct{ in, want string }{
		{"data: a\n\n", `[ "a" id="",false retry=-1 over=false]`},
		{"\xef\xbb\xbfdata:a\n\n", `[ "a" id="",false retry=-1 over=false]`},
		{"event: message\ndata: a\ndata:  b\r\ndata\r\r", `[message "a\n b\n" id="",false retry=-1 over=false]`},
		{": comment\n\n\n\ndata: x\r\n\r\ndata: y\r\rdata: z\n\n", `[ "x" id="",false retry=-1 over=false][ "y" id="",false retry=-1 over=false][ "z" id="",false retry=-1 over=false]`},
		{"id: 7\nretry: 500\ndata: \n\n", `[ "" id="7",true retry=500000000 over=false]`},
		{"id\nretry: x\nretry: -1\nretry: 99999999999\nevent: e\nother: y\n\n", `[e "" id="",true retry=-1 over=false]`},
		{"id: a\x00b\ndata: x\n\n", `[ "x" id="",false retry=-1 over=false]`},
		{"event: nothing\n\ndata: x\n\n", `[nothing "x" id="",false retry=-1 over=false]`},
		{"data: 0123456789\n\ndata: y\n\n", `[ "0123456789" id="",false retry=-1 over=false][ "y" id="",false retry=-1 over=false]`},
		{"data: 0123456789a\n\ndata: y\n\n", `[ "0123456789a" id="",false retry=-1 over=true][ "y" id="",false retry=-1 over=false]`},
		{"data: 01234\ndata: 56789\n\ndata: y\n\n", `[ "01234" id="",false retry=-1 over=true][ "y" id="",false retry=-1 over=false]`},
		{"data: " + strings.Repeat("x", 5000) + "\r\ndata: y\r\n\r\n", `[ "` + strings.Repeat("x", 506) + `" id="",false retry=-1 over=true]`},
	}
	for _, test := range tests {
		for _, r := range []io.Reader{strings.NewReader(test.in), iotest.OneByteReader(strings.NewReader(test.in)), iotest.HalfReader(strings.NewReader(test.in))} {
			if got, err := readAll(r, 10); got != test.want || err != io.EOF {
				t.Errorf("%.60q: %.200s %v\nwant %.200s", test.in, got, err, test.want)
			}
		}
	}
	for _, cut := range []string{"data: x", "data: x\ndat"} {
		if got, err := readAll(strings.NewReader(cut), 10); got != "" || !errors.Is(err, errCutOff) {
			t.Errorf("%q: %s %v", cut, got, err)
		}
	}
	if got, err := readAll(strings.NewReader("data: x\n"), 10); got != "" || err != io.EOF {
		t.Error(got, err)
	}
}

// FuzzEvents: whatever the pieces are in which a stream comes, the events are
// the same and within bounds.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\nretry: 5\nevent: message\ndata: {}\n\n"))
	f.Add([]byte("data: a\r\ndata: b\r\r: c\n\n\n"))
	f.Add([]byte("\xef\xbb\xbfdata\n\ndata:" + strings.Repeat("y", 100) + "\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const max = 64
		whole, err := readAll(bytes.NewReader(data), max)
		pieces, err2 := readAll(iotest.OneByteReader(bytes.NewReader(data)), max)
		if whole != pieces || !errors.Is(err2, err) {
			t.Errorf("%q %v\n%q %v", whole, err, pieces, err2)
		}
		r := newEventReader(bytes.NewReader(data), max)
		for {
			e, err := r.next()
			if err != nil {
				break
			}
			if len(e.data) > max && !e.overlong || len(e.data) > keptHead || len(e.id) > maxField || len(e.name) > maxField || e.retry < noRetry {
				t.Errorf("%+v", e)
			}
		}
	})
}

package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

// A read that nobody waits for any more loses nothing.
func TestInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		in := newInput(r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b, err := in.next(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%q, %v", b, err)
		}
		go func() {
			_, _ = w.Write([]byte("0123456789"))
			_ = w.Close()
		}()
		var got bytes.Buffer
		for {
			b, err := in.next(t.Context(), 3)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(b) == 0 || len(b) > 3 {
				t.Fatalf("%q, %v", b, err)
			}
			got.Write(b)
		}
		if got.String() != "0123456789" {
			t.Errorf("%q", got.String())
		}
		if b, err := in.next(t.Context(), 3); !errors.Is(err, io.EOF) {
			t.Errorf("after the end %q, %v", b, err)
		}
	})
	failing := newInput(iotest.ErrReader(errTest))
	if b, err := failing.next(t.Context(), 1); !errors.Is(err, errTest) {
		t.Errorf("%q, %v", b, err)
	}
}

// reading is a guest that reads standard input to its end, or says how that
// failed; with "ahead" while its code waits for nothing.
func reading(g *guestEnd, f frame) bool {
	params, _, _ := strings.Cut(f.Code, "#")
	for {
		g.control(`{"type":"call","id":1,"run":%d,"method":"stdin","params":%s}`, f.ID, params)
		reply, ok := g.next()
		switch {
		case !ok:
			return false
		case !reply.OK:
			g.output(wire.KindStderr, reply.Error.Kind)
		case string(reply.Result) != "null":
			g.output(wire.KindStdout, string(reply.Result))
			continue
		}
		g.done(f, "ok", 0)
		return true
	}
}

func TestStdin(t *testing.T) {
	for _, tt := range []struct {
		name, params, stdout, stderr string
		stdin                        io.Reader
		end                          End
	}{
		{"read", `{"most":65536}`, `{"data":"aGV5"}`, "", strings.NewReader("hey"), Finished},
		{"in pieces", `{"most":2}`, `{"data":"aGU="}{"data":"eQ=="}`, "", strings.NewReader("hey"), Finished},
		{"none", `{"most":1}`, "", "unsupported", nil, Finished},
		{"too much at a time", `{"most":65537}`, "", "invalid", strings.NewReader("hey"), Finished},
		{"too little", `{"most":0}`, "", "invalid", strings.NewReader("hey"), Finished},
		{"slow, waited for", `{"most":9}`, `{"data":"aGV5"}`, "", &slow{t: 5 * time.Second, r: strings.NewReader("hey")}, Finished},
		{"slow, ahead", `{"most":9,"ahead":true}`, "", "", &slow{t: 5 * time.Second, r: strings.NewReader("hey")}, TimedOut},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSingle(t, &scripted{guest: each(reading)}, nil)
				out, err := s.Exec(t.Context(), s.Enter(), Request{Submission: Submission{Code: tt.params + "#", Stdin: tt.stdin, Timeout: 2 * time.Second}})
				if err != nil {
					t.Fatal(err)
				}
				if out.End != tt.end || out.Stdout.Head != tt.stdout || out.Stderr.Head != tt.stderr {
					t.Errorf("%v, %q, %q; want %v, %q, %q", out.End, out.Stdout.Head, out.Stderr.Head, tt.end, tt.stdout, tt.stderr)
				}
				time.Sleep(10 * time.Second) // for the read that nobody waits for
			})
		})
	}
}

// slow is a reader that takes its time once.
type slow struct {
	t time.Duration
	r io.Reader
}

func (s *slow) Read(p []byte) (int, error) {
	time.Sleep(s.t)
	s.t = 0
	return s.r.Read(p)
}

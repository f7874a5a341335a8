//go:build linux

package sandboxtest

import (
	"io"
	"log/slog"
	"testing"
	"time"

	sessions "github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

// hoardLimit is the workspace limit of a sandbox that abuses the fetching of
// its files.
const hoardLimit = 8 << 20

// A hoard is what hostile code does while its files are fetched: it replaces
// the guest's part of the protocol.
type hoard struct {
	name string
	code string
	// late means that the call runs into its timeout.
	late bool
}

// hoardPrelude comes before each program: swap(f) runs f(session, path) instead
// of the function that sends the files, and claim announces a file.
const hoardPrelude = `
import base64, gc, time, sallyport_guest.tasks as tasks
gc.unfreeze()  # an engine may hide from it what it has loaded
def swap(f):
    tasks.TASKS["take_named"] = lambda session: f(session, session.channel.request_sync("task_next", "{}")["path"])
def claim(path, size):
    for o in gc.get_objects():
        if type(o).__name__ == "Workspace":
            o.report = lambda: ',"artifacts":[{"path":"%s","size":%d}]' % (path, size)
def part(path, data, more):
    return {"path": path, "mode": 0o644, "data": base64.b64encode(data).decode(), "more": more}
def stubborn():
    while True:
        try:
            while True:
                pass
        except KeyboardInterrupt:
            pass
claim("a.bin", 8 << 20)  # no more than a workspace has: it would not be asked for
`

func hoards() []hoard {
	return []hoard{
		{name: "more than the file has", code: `
def send(session, path):
    while True:
        tasks.tell(session, part(path, b"x" * (700 << 10), True))
swap(send)`},
		{name: "more than it claimed", code: `
claim("a.bin", 3)
def send(session, path):
    tasks.tell(session, part(path, b"x" * (700 << 10), False))
swap(send)`},
		{name: "another file", code: `
swap(lambda session, path: tasks.tell(session, part("../../b.bin", b"x", False)))`},
		{name: "drops", code: `
def send(session, path):
    while True:
        tasks.tell(session, part(path, b"x", True))
swap(send)`},
		{name: "half a file", code: `
swap(lambda session, path: tasks.tell(session, part(path, b"x" * (700 << 10), True)))`},
		{name: "a trickle", late: true, code: `
def send(session, path):
    while True:
        try:
            tasks.tell(session, part(path, b"x" * (16 << 10), True))
            time.sleep(1)
        except KeyboardInterrupt:
            pass
swap(send)`},
		{name: "asks forever", late: true, code: `
def send(session, path):
    while True:
        try:
            session.channel.request_sync("task_next", "{}")
        except KeyboardInterrupt:
            pass
swap(send)`},
		{name: "never answers", late: true, code: `
swap(lambda session, path: time.sleep(600))`},
		{name: "spins", late: true, code: `
swap(lambda session, path: stubborn())`},
		{name: "dies", code: `
import os
swap(lambda session, path: os._exit(7))`},
	}
}

// hoarding fetches files from sandboxes with hostile code. It must cost the
// host no more disk than one workspace, and the call must end.
func (s *suite) hoarding(t *testing.T) {
	b := s.backend(t)
	fetch := func(t *testing.T, code string) (*sessions.Outcome, int64, int64) {
		spec := *s.spec()
		spec.Limits.WorkspaceBytes = hoardLimit
		sess, err := sessions.New(sessions.Key{Name: "hoard"}, sessions.Options{Logger: slog.New(slog.DiscardHandler)},
			&sessions.Template{Engine: b, Program: spec.Program, Root: spec.Root, Env: spec.Env, Limits: spec.Limits, Network: spec.Network})
		if err != nil {
			t.Fatal(err)
		}
		defer sess.Close()
		var written, whole int64
		out, err := sess.Exec(t.Context(), sess.Enter(), sessions.Request{
			Submission: sessions.Submission{Code: code, Timeout: 2 * time.Second},
			Collect: func(out *sessions.Outcome) ([]wire.Artifact, sessions.Create) {
				return out.Artifacts, func(string, int64, string) (io.Writer, func(bool) error, error) {
					at := written
					return counter{&written}, func(ok bool) error {
						if ok {
							whole += written - at
						}
						return nil
					}, nil
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out, written, whole
	}
	t.Run("honest", func(t *testing.T) { // the positive control
		out, written, whole := fetch(t, `open("a.bin", "wb").write(b"x" * (7 << 20)) and None`)
		if out.End != sessions.Finished || written != 7<<20 || whole != written || len(out.LeftOut) != 0 {
			t.Errorf("%d bytes written, %d in whole files, want %d; %+v", written, whole, 7<<20, out)
		}
	})
	for _, h := range hoards() {
		t.Run(h.name, func(t *testing.T) {
			began := time.Now()
			out, written, whole := fetch(t, hoardPrelude+h.code)
			took := time.Since(began)
			if written > hoardLimit || whole != 0 {
				t.Errorf("%d bytes were written, %d in whole files; at most %d and none may be", written, whole, hoardLimit)
			}
			if len(out.LeftOut) != 1 || out.LeftOut[0].Path != "a.bin" {
				t.Errorf("left out: %q, want a.bin", out.LeftOut)
			}
			if h.late != (out.End == sessions.TimedOut) {
				t.Errorf("it ended as %v, with time up: want %v", out.End, h.late)
			}
			// Two seconds plus the time a fetch is allowed; beyond that it
			// hangs.
			if took > execTimeout/2 {
				t.Errorf("the call took %v", took)
			}
		})
	}
}

// counter counts what is written.
type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return len(p), nil
}

//go:build linux

package sandboxtest

import (
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// forks has many children at the same time that only wait. They share the memory of
// their parent, so all have room where copies of it would not.
func (s *suite) forks(t *testing.T, sess *session) {
	s.needProcesses(t)
	sess.must(t, "kept = 42")
	for _, tt := range []struct{ name, code, want string }{
		{"os.fork", `
import os
born, beginning = os.pipe()
wait, end = os.pipe()
children = []
for i in range(50):
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(beginning, b"x")
        os.read(wait, 1)
        os._exit(0)
    children.append(child)
for child in children:
    os.read(born, 1)
os.close(end)
print(sum(os.waitpid(child, 0)[1] == 0 for child in children))
`, "50\n"},
		{"multiprocessing", `
import multiprocessing
fork = multiprocessing.get_context("fork")
def work(born, end):
    born.release()
    end.wait()
born, end = fork.Semaphore(0), fork.Event()
children = [fork.Process(target=work, args=(born, end)) for i in range(30)]
for child in children:
    child.start()
for child in children:
    born.acquire()
end.set()
for child in children:
    child.join()
print(sum(child.exitcode == 0 for child in children))
`, "30\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := sess.must(t, tt.code); got != tt.want {
				t.Errorf("children that ended well: got %q, want %q", got, tt.want)
			}
			if got := sess.must(t, "print(kept)"); got != "42\n" {
				t.Errorf("the session's variable: got %q, want 42", got)
			}
		})
	}
}

func (s *suite) threadBomb(t *testing.T, sess *session) {
	s.needProcesses(t)
	r := sess.exec(t, `
import threading
stop = threading.Event()
threads = []
try:
    while len(threads) < 4096:
        th = threading.Thread(target=stop.wait)
        th.start()
        threads.append(th)
except RuntimeError as e:
    print(e)
print("had", len(threads))
stop.set()
for th in threads:
    th.join()
`)
	if had := lastNumber(r.Stdout, "had"); had > processLimit {
		t.Errorf("%d threads where %d are allowed", had, processLimit)
	}
	s.survivedOrDied(t, sess, r, sandbox.OutOfMemory)
}

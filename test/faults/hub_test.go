//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// hubPatience bounds what a busy machine with ten clients may take.
const hubPatience = 90 * time.Second

// A hubHost is where clients of one user share a hub.
type hubHost struct {
	*chain
	place string
	noted string // the file that the server `note` appends to
	seed  uint64

	mu     sync.Mutex
	fronts map[int]bool // the processes of clients that were not killed
}

// noteServer appends a token to a file and says so.
const noteServer = `
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "note", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "append", "inputSchema": {"type": "object", "properties": {"token": {"type": "string"}}}}]}
    else:
        f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(f, (m["params"]["arguments"]["token"] + "\n").encode())
        os.close(f)
        r = {"content": [{"type": "text", "text": "noted"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
`

func newHubHost(t *testing.T, n int, env ...string) (*hubHost, int) {
	t.Helper()
	bin := os.Getenv("SALLYPORT_BIN")
	if bin == "" {
		sandboxtest.Skip(t, "faults.hub", "SALLYPORT_BIN is not set")
	}
	h := &hubHost{chain: newChain(t, bin, nil), fronts: map[int]bool{}}
	h.place = filepath.Dir(h.home)
	h.noted = filepath.Join(h.place, "noted")
	script := filepath.Join(h.place, "note.py")
	definition, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"note": map[string]any{"command": "/usr/bin/python3", "args": []string{script, h.noted}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(h.home, "MCPs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{script: noteServer, filepath.Join(h.home, "MCPs", "note.json"): string(definition)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n = h.begin(t, n)
	h.seed = h.rng.Uint64()
	h.env = append(h.env, "SALLYPORT_HUB_ENABLED=true", "SALLYPORT_HUB_IDLE=1s")
	h.env = append(h.env, env...)
	t.Cleanup(func() { // of a test that failed
		for _, p := range h.all() {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	})
	return h, n
}

// connect starts a client.
func (h *hubHost) connect() (*client, error) {
	c, err := connect(h.host.Executable, h.env, nil, h.home, hubPatience)
	if c != nil && err == nil {
		h.mu.Lock()
		h.fronts[c.cmd.Process.Pid] = true
		h.mu.Unlock()
	}
	return c, err
}

// must starts a client that cannot do without.
func (h *hubHost) must(t *testing.T) *client {
	t.Helper()
	c, err := h.connect()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hangUp ends a client, and says what of its answers is wrong.
func (h *hubHost) hangUp(c *client) error {
	ctx, cancel := context.WithTimeout(context.Background(), hubPatience)
	defer cancel()
	err := c.hangUp(ctx)
	h.mu.Lock()
	delete(h.fronts, c.cmd.Process.Pid)
	h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strange) > 0 {
		err = errors.Join(err, fmt.Errorf("answers to nothing: %q", c.strange))
	}
	return err
}

// all lists the processes of Sallyport and of its servers.
func (h *hubHost) all() []sandboxtest.Process {
	found := h.host.Processes()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if line := cmdline(pid); pid != os.Getpid() && strings.Contains(line, filepath.Join(h.place, "note.py")) {
			found = append(found, sandboxtest.Process{PID: pid, Name: "server"})
		}
	}
	return found
}

func cmdline(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}

// byRole lists the processes by what they are.
func (h *hubHost) byRole() map[string][]sandboxtest.Process {
	h.mu.Lock()
	fronts := maps.Clone(h.fronts)
	h.mu.Unlock()
	of := map[string][]sandboxtest.Process{}
	for _, p := range h.all() {
		what := role(p, 0)
		line := cmdline(p.PID)
		switch {
		case p.Name == "server":
			what = "server"
		case fronts[p.PID]:
			what = "front"
		case strings.HasPrefix(line, "sallyport hub run"):
			what = "hub"
		case strings.HasSuffix(line, " serve "):
			what = "new front"
		}
		of[what] = append(of[what], p)
	}
	// What a hub starts has its command line at first.
	all := of["hub"]
	of["hub"] = slices.DeleteFunc(slices.Clone(all), func(p sandboxtest.Process) bool {
		return slices.ContainsFunc(all, func(q sandboxtest.Process) bool { return q.PID == p.Parent })
	})
	return of
}

// hub returns the process of the one hub.
func (h *hubHost) hub(t *testing.T) int {
	t.Helper()
	hubs := h.byRole()["hub"]
	if len(hubs) != 1 {
		t.Fatalf("got hubs %v, want one", hubs)
	}
	return hubs[0].PID
}

// end waits until nothing is left of clients that have hung up.
func (h *hubHost) end(t *testing.T) {
	t.Helper()
	eventuallyWithin(t, "left behind", hubPatience, func() []string {
		left := append(slices.DeleteFunc(h.host.Left(), unfinished), h.cgroups()...)
		for _, p := range h.all() {
			left = append(left, p.String())
		}
		_ = filepath.WalkDir(filepath.Join(h.place, "run"), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type()&os.ModeSocket != 0 {
				left = append(left, "socket "+path)
			}
			return nil
		})
		return left
	})
}

// TestHubKill kills the hub of ten busy clients at random moments, and sometimes
// a client's process, a server or a part of a sandbox. Each request has one
// answer, no code runs twice, a result that was received is real, and nothing
// outlives its hub.
func TestHubKill(t *testing.T) {
	h, n := newHubHost(t, 5)
	ledger := &ledger{answers: map[string]string{}}
	stop := make(chan struct{})
	var work sync.WaitGroup
	workers := make([]*worker, 10)
	for i := range workers {
		w := &worker{h: h, t: t, ledger: ledger, number: i, rng: rand.New(rand.NewPCG(h.seed, uint64(i+1)))}
		workers[i] = w
		work.Go(func() { w.run(stop) })
	}
	recovered := func(when string) {
		before := make([]int, len(workers))
		for i, w := range workers {
			before[i] = ledger.successes(w.number)
		}
		eventuallyWithin(t, when+": without a result", 2*hubPatience, func() (without []string) {
			for i, w := range workers {
				// One may have been there when the hub was killed.
				if ledger.successes(w.number) < before[i]+2 && !t.Failed() {
					without = append(without, fmt.Sprint("client ", i))
				}
			}
			return without
		})
	}
	recovered("at the beginning")
	killed := map[string]int{}
	for i := range n {
		time.Sleep(time.Duration(h.rng.IntN(1500)) * time.Millisecond)
		h.note()
		victims := []string{"hub", "hub", "hub", "front", "server", "supervisor", "sandbox"}
		what := victims[h.rng.IntN(len(victims))]
		if i == 0 {
			what = "hub"
		}
		eventually(t, "more than one hub", func() (more []string) {
			for _, p := range h.byRole()["hub"] {
				more = append(more, p.String())
			}
			if len(more) == 1 {
				return nil
			}
			return more
		})
		before := h.byRole()
		if len(before[what]) == 0 {
			continue // a new one is about to begin
		}
		victim := before[what][h.rng.IntN(len(before[what]))]
		if what == "front" {
			h.mu.Lock()
			delete(h.fronts, victim.PID)
			h.mu.Unlock()
		}
		_ = syscall.Kill(victim.PID, syscall.SIGKILL)
		killed[what]++
		if what == "hub" {
			delete(before, "front")
			delete(before, "new front")
			eventuallyWithin(t, fmt.Sprintf("round %d: outlive their hub", i), hubPatience, func() (left []string) {
				now := h.all()
				for _, of := range before {
					for _, p := range of {
						if slices.ContainsFunc(now, func(q sandboxtest.Process) bool { return q.PID == p.PID && q.Name == p.Name }) {
							left = append(left, p.String())
						}
					}
				}
				return left
			})
		}
		if i%5 == 4 {
			recovered(fmt.Sprintf("round %d, a %s killed", i, what))
		}
		if t.Failed() {
			t.Logf("round %d of %d, a %s killed", i, n, what)
			break
		}
	}
	if !t.Failed() {
		recovered("at the end")
	}
	close(stop)
	work.Wait()
	h.end(t)
	ledger.check(t, h.noted)
	t.Logf("%d rounds, killed %v; calls: %v", n, killed, ledger.tally())
	for _, why := range ledger.reasons() {
		t.Log(why)
	}
	if tally := ledger.tally(); tally["failed"] > 0 && killed["server"]+killed["supervisor"]+killed["sandbox"] == 0 {
		t.Errorf("%d calls failed, with no server and no sandbox killed", tally["failed"])
	}
}

// A ledger has what became of each call.
type ledger struct {
	mu      sync.Mutex
	answers map[string]string // by token
	oks     [10]int
	whys    map[string]int
}

func (l *ledger) put(worker int, token, outcome, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[token] = outcome
	if outcome == "done" {
		l.oks[worker]++
	}
	if why != "" {
		if l.whys == nil {
			l.whys = map[string]int{}
		}
		l.whys[fmt.Sprintf("%s: %.160q", outcome, why)]++
	}
}

func (l *ledger) successes(worker int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oks[worker]
}

func (l *ledger) tally() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[string]int{}
	for _, outcome := range l.answers {
		of[outcome]++
	}
	return of
}

func (l *ledger) reasons() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for why, n := range l.whys {
		out = append(out, fmt.Sprintf("%d times %s", n, why))
	}
	slices.Sort(out)
	return out
}

// check holds what clients were told against what was done.
func (l *ledger) check(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, token := range strings.Fields(string(text)) {
		times[token]++
	}
	for token, n := range times {
		if _, asked := l.answers[token]; n != 1 || !asked {
			t.Errorf("token %s, answered as %q, was noted %d times, want once", token, l.answers[token], n)
		}
	}
	for token, outcome := range l.answers {
		if outcome == "done" && times[token] != 1 {
			t.Errorf("token %s was answered as done, and noted %d times, want once", token, times[token])
		}
	}
}

// A worker is one of the clients.
type worker struct {
	h      *hubHost
	t      *testing.T
	ledger *ledger
	number int
	rng    *rand.Rand
}

func (w *worker) run(stop <-chan struct{}) {
	var c *client
	defer func() {
		if c == nil {
			return
		}
		if err := w.h.hangUp(c); err != nil {
			w.t.Errorf("client %d: %v", w.number, err)
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if c == nil {
			var err error
			if c, err = w.h.connect(); err != nil {
				w.t.Errorf("client %d cannot connect: %v", w.number, err)
				return
			}
		}
		if !w.ask(c, i) {
			return
		}
		select {
		case <-c.ended:
			if w.h.lives(c) {
				w.t.Errorf("client %d: its process ended by itself: %v\n%s", w.number, c.cmd.ProcessState, c.logs)
				return
			}
			c = nil
		default:
		}
	}
}

// lives reports whether nobody has killed the process of a client.
func (h *hubHost) lives(c *client) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fronts[c.cmd.Process.Pid]
}

// ask sends one request and judges its answer; it reports whether to go on.
func (w *worker) ask(c *client, i int) bool {
	if w.rng.IntN(5) == 0 {
		method := []string{"ping", "tools/list"}[w.rng.IntN(2)]
		a := wait(c.request(method, map[string]any{}), hubPatience)
		if a.err != nil && w.h.lives(c) {
			w.t.Errorf("client %d: %s: %v\n%s", w.number, method, a.err, c.logs)
			return false
		}
		return true
	}
	token := fmt.Sprintf("%d-%d", w.number, i)
	session := ""
	if w.rng.IntN(4) == 0 {
		session = fmt.Sprintf("shared-%d", w.rng.IntN(3))
	}
	const code = "await runtime.call_tool('note', 'append', {'token': %q})\nprint('noted', %[1]q)"
	a := wait(c.runIn(session, fmt.Sprintf(code, token)), hubPatience)
	switch {
	case errors.Is(a.err, errLate):
		w.t.Errorf("client %d: no answer to %s in %v\n%s", w.number, token, hubPatience, c.logs)
		return false
	case a.err != nil && w.h.lives(c):
		w.t.Errorf("client %d: %s: %v\n%s", w.number, token, a, c.logs)
		return false
	case a.err != nil:
		w.ledger.put(w.number, token, "unanswered", "")
	case !a.IsError && strings.Contains(a.text(), "noted "+token):
		w.ledger.put(w.number, token, "done", "")
	case !a.IsError:
		w.t.Errorf("client %d: %s: a success without a result: %v", w.number, token, a)
		return false
	case strings.HasPrefix(a.text(), "Sallyport's hub (process "):
		w.ledger.put(w.number, token, "lost", "")
	default:
		lines := strings.Split(strings.TrimSpace(a.text()), "\n")
		w.ledger.put(w.number, token, "failed", lines[len(lines)-1])
	}
	return true
}

//go:build linux

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hubs "github.com/sallyport/sallyport/internal/hub"
)

// figures are what a hub takes of the host.
type figures struct{ descriptors, threads, processes, kilobytes int }

func (f figures) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d processes below it, %d KB", f.descriptors, f.threads, f.processes, f.kilobytes)
}

func (h *hubHost) figures(t *testing.T, hub int) (f figures) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", hub)
	for at, n := range map[string]*int{"fd": &f.descriptors, "task": &f.threads} {
		entries, err := os.ReadDir(dir + at)
		if err != nil {
			t.Fatal(err)
		}
		*n = len(entries)
	}
	for what, of := range h.byRole() {
		if what != "front" && what != "new front" && what != "hub" {
			f.processes += len(of)
		}
	}
	text, err := os.ReadFile(dir + "smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			f.kilobytes, _ = strconv.Atoi(fields[1])
		}
	}
	return f
}

// TestHubConnects lets many clients come and go: the hub does not grow.
func TestHubConnects(t *testing.T) {
	h, n := newHubHost(t, 0)
	if n < 200 {
		n = 200
	} else {
		n = 10_000
	}
	first := h.must(t) // without which the hub would end
	if a := wait(first.runPython("print(6 * 7)"), hubPatience); a.text() != "42" {
		t.Fatalf("the first call: %v\n%s", a, first.logs)
	}
	hub := h.hub(t)
	list, err := filepath.Glob(filepath.Join(h.place, "run", "sallyport", "hub", "*.sock"))
	if err != nil || len(list) != 1 {
		t.Fatalf("the hub's sockets: %v, %v", list, err)
	}
	place := hubs.Place{Dir: filepath.Dir(list[0]), Key: strings.TrimSuffix(filepath.Base(list[0]), ".sock"), Log: slog.New(slog.DiscardHandler)}
	about, err := json.Marshal(map[string]any{"environ": h.env, "dir": h.home}) // an app.Origin
	if err != nil {
		t.Fatal(err)
	}
	// come is one client. Some are whole processes, and some of those run code.
	come := func(i int) error {
		if i%50 != 0 {
			return visit(&place, about)
		}
		c, err := h.connect()
		if err != nil {
			return err
		}
		if i%100 == 0 {
			if a := wait(c.runPython("print(6 * 7)"), hubPatience); a.text() != "42" {
				return fmt.Errorf("a call: %v\n%s", a, c.logs)
			}
		}
		return h.hangUp(c)
	}
	many := func(n int) {
		var work sync.WaitGroup
		numbers := make(chan int)
		for range 4 {
			work.Go(func() {
				for i := range numbers {
					if err := come(i); err != nil && !t.Failed() {
						t.Errorf("client %d: %v", i, err)
					}
				}
			})
		}
		for i := range n {
			numbers <- i
		}
		close(numbers)
		work.Wait()
	}
	many(100)
	before := h.figures(t, hub)
	began := time.Now()
	many(n)
	t.Logf("%d connects in %v", n, time.Since(began).Round(time.Millisecond))
	var after figures
	// What the last clients had may be about to end, and pages to be given back.
	eventuallyWithin(t, fmt.Sprintf("the hub has grown with %d connects; before: %v", n, before), hubPatience, func() []string {
		after = h.figures(t, hub)
		if after.descriptors > before.descriptors+8 || after.threads > before.threads+16 ||
			after.processes > before.processes || after.kilobytes > before.kilobytes+16<<10 {
			return []string{after.String()}
		}
		return nil
	})
	t.Logf("before: %v", before)
	t.Logf("after:  %v", after)
	if now := h.hub(t); now != hub {
		t.Errorf("the hub is process %d now, and was %d", now, hub)
	}
	if err := h.hangUp(first); err != nil {
		t.Error(err)
	}
	h.end(t)
}

// visit is a client that connects, shakes hands and leaves.
func visit(place *hubs.Place, about []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), hubPatience)
	defer cancel()
	in, say := io.Pipe()
	listen, out := io.Pipe()
	front := &hubs.Frontend{
		Connect: func(ctx context.Context, h hubs.Hello) (*hubs.Conn, error) {
			return place.Connect(ctx, h, func(context.Context) error { return errors.New("the hub has ended") })
		},
		Log: place.Log, Aside: io.Discard, About: about, Process: os.Getpid(),
	}
	served := make(chan error, 1)
	go func() {
		err := front.Serve(ctx, in, out)
		_ = out.Close()
		served <- err
	}()
	answered := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(listen).ReadString('\n')
		if err == nil && !strings.Contains(line, "serverInfo") {
			err = fmt.Errorf("the answer to initialize: %.300q", line)
		}
		_, _ = io.Copy(io.Discard, listen)
		answered <- err
	}()
	first, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(say, "%s\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n", first)
	_ = say.Close()
	err = errors.Join(err, <-served)
	return errors.Join(err, <-answered)
}

// TestStuckClient has clients that do not read, and one that is killed: the
// others do not notice, and what the killed one ran ends.
func TestStuckClient(t *testing.T) {
	h, _ := newHubHost(t, 0)
	other := h.must(t)
	works := func(when string) {
		t.Helper()
		if a := wait(other.runPython("print(6 * 7)"), hubPatience); a.text() != "42" {
			t.Errorf("%s: %v\n%s", when, a, other.logs)
		}
	}
	works("at first")
	hub := h.hub(t)
	before := h.figures(t, hub)

	stuck := exec.Command(h.host.Executable, "serve")
	stuck.Env, stuck.Dir = h.env, h.home
	in, err := stuck.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	unread, err := stuck.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stuck.Start(); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		line := func(id int, method string, params any) error {
			m := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
			if id > 0 {
				m["id"] = id
			}
			b, _ := json.Marshal(m)
			n, err := in.Write(append(b, '\n'))
			sent.Add(int64(n))
			return err
		}
		err := errors.Join(line(1, "initialize", hello), line(0, "notifications/initialized", map[string]any{}))
		for id := 2; err == nil; id++ { // until it is killed
			switch {
			case id%100 == 2:
				err = line(id, "tools/call", map[string]any{"name": "run_python", "arguments": map[string]any{"code": "print('x' * 900_000)"}})
			case id%10 == 0:
				err = line(id, "tools/list", map[string]any{})
			default:
				err = line(id, "ping", map[string]any{"_meta": map[string]any{"padding": strings.Repeat("x", 1000)}})
			}
		}
	}()
	// The flood stands still when everything on its way is full.
	worst, still := 0, 0
	for last := int64(-1); still < 20 && !t.Failed(); {
		works("beside a client that does not read")
		worst = max(worst, h.figures(t, hub).kilobytes)
		if now := sent.Load(); now != last {
			last, still = now, 0
		} else {
			still++
		}
	}
	t.Logf("%d KB were taken of the client that does not read; the hub had %d KB before, %d KB at most", sent.Load()>>10, before.kilobytes, worst)
	if bound := before.kilobytes + 192<<10; worst > bound {
		t.Errorf("the hub has %d KB because of a client that does not read, want at most %d", worst, bound)
	}

	// Its sandboxes are those that are not another's.
	runs := h.must(t)
	if a := wait(runs.runPython("x = 1"), hubPatience); a.err != nil || a.IsError {
		t.Errorf("the client to be killed: %v\n%s", a, runs.logs)
	}
	_ = runs.runPython("while True: pass")
	if of := len(h.byRole()["sandbox"]); of < 3 {
		t.Errorf("three clients have %d sandboxes", of)
	}
	for _, p := range []*os.Process{runs.cmd.Process, stuck.Process} {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}
	<-runs.ended
	<-flooded
	_, _ = io.Copy(io.Discard, unread)
	_ = stuck.Wait()
	eventuallyWithin(t, "the sandboxes of killed clients", hubPatience, func() (left []string) {
		if of := h.byRole()["sandbox"]; len(of) != 1 {
			left = append(left, fmt.Sprint(of))
		}
		return left
	})
	works("when the others are killed")
	if now := h.hub(t); now != hub {
		t.Errorf("the hub is process %d now, and was %d", now, hub)
	}
	if err := h.hangUp(other); err != nil {
		t.Error(err)
	}
	h.end(t)
}

//go:build linux

package endurance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

const (
	sessions = 4 // with names
	// patience bounds one call, on a machine that does much else.
	patience = 2 * time.Minute
)

// count is what sessions run: a number of the session's, a number of all
// sessions', a saved tool and a server's.
const count = `
n = globals().get("n", 0) + 1
total = update_memory("total", lambda v: (v or 0) + 1)
mine = update_memory("of-%[1]s", lambda v: (v or 0) + 1)
from user_tools import twice
echoed = await mcp_echo.echo(text=f"{n}")
assert twice(n) == 2 * n and echoed == str(n) and mine == n, (n, mine, echoed)
print("counted", n, total)
`

// A place is where the Sallyports of one user run.
type place struct {
	env   []string
	state string
	host  sandboxtest.HostState
}

func newPlace(t *testing.T, bin string) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{state: filepath.Join(dir, "state"), host: sandboxtest.HostState{
		Executable: filepath.Join(dir, "sallyport"), Dirs: []string{filepath.Join(dir, "run", "sallyport", "gvisor")},
	}}
	program, err := os.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	copied, err := os.OpenFile(p.host.Executable, os.O_WRONLY|os.O_CREATE, 0o755)
	if err == nil {
		_, err = io.Copy(copied, program)
		_ = copied.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	echo := filepath.Join(dir, "echoserver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", echo, "github.com/sallyport/sallyport/bench/echoserver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"echo": map[string]any{"command": echo}}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "servers.json")
	if err := os.WriteFile(config, servers, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"home", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{
		"HOME=" + filepath.Join(dir, "home"), "PATH=/usr/bin:/bin", "LANG=C.UTF-8",
		"XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "SALLYPORT_STATE_DIR=" + p.state, "SALLYPORT_SERVERS_CONFIG=" + config,
		// Sessions make room for each other, and sleep as soon as they may.
		"SALLYPORT_SESSIONS_MAX_RUNNING=3", "SALLYPORT_SESSIONS_IDLE=2s", "SALLYPORT_SESSIONS_POOL=1",
		"SALLYPORT_TIMEOUTS_DEFAULT=60s", "SALLYPORT_LOG_LEVEL=info",
	}
	return p
}

// A sallyport is one that serves a client of the official SDK.
type sallyport struct {
	place  *place
	client *mcp.ClientSession
	logs   string
}

func (p *place) serve(t *testing.T, name string) *sallyport {
	t.Helper()
	s := &sallyport{place: p, logs: filepath.Join(filepath.Dir(p.state), name+".log")}
	logs, err := os.OpenFile(s.logs, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	cmd := exec.Command(p.host.Executable, "serve", "--standalone")
	cmd.Env, cmd.Stderr = p.env, logs
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	transport := &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}
	s.client, err = mcp.NewClient(&mcp.Implementation{Name: "endurance", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs code and returns what it wrote, or why it did not run to its end.
func (s *sallyport) run(ctx context.Context, session, code string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	arguments := map[string]any{"code": code, "servers": []string{"echo"}, "timeout": 60}
	if session != "" {
		arguments["session"] = session
	}
	r, err := s.client.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: arguments})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, c := range r.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text.WriteString(c.Text)
		}
	}
	if r.IsError || strings.Contains(text.String(), "state lost") {
		return "", fmt.Errorf("%.2000s", text.String())
	}
	return text.String(), nil
}

// command runs another command of the executable.
func (p *place) command(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.host.Executable, args...)
	cmd.Env = p.env
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil || said.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), err
}

// elsewhere says of an error that another Sallyport has the session just now.
func elsewhere(err error) bool { return strings.Contains(err.Error(), "in use by another Sallyport") }

// ledger is what was answered.
type ledger struct {
	mu     sync.Mutex
	counts map[string][]int
	totals []int
	turned int // away: the session was elsewhere
	moved  int // between two Sallyports
	last   map[string]int
	slept  int // by command
}

// enter notes an answer of count, from the Sallyport of that number.
func (l *ledger) enter(session, text string, by int) error {
	fields := strings.Fields(text)
	if len(fields) != 3 || fields[0] != "counted" {
		return fmt.Errorf("session %s answered %q", session, text)
	}
	n, err1 := strconv.Atoi(fields[1])
	total, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("session %s answered %q", session, text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[session] = append(l.counts[session], n)
	l.totals = append(l.totals, total)
	if last, ok := l.last[session]; ok && last != by {
		l.moved++
	}
	l.last[session] = by
	return nil
}

// whole says whether numbers are 1 to their number, each once.
func whole(list []int) error {
	list = slices.Clone(list)
	slices.Sort(list)
	for i, n := range list {
		if n != i+1 {
			return fmt.Errorf("the %d. number of %d is %d", i+1, len(list), n)
		}
	}
	return nil
}

func TestTogether(t *testing.T) {
	bin := os.Getenv("SALLYPORT_BIN")
	if bin == "" {
		sandboxtest.Skip(t, "endurance", "SALLYPORT_BIN is not set")
	}
	duration, servers := 15*time.Second, 2
	var err error
	if v := os.Getenv("SALLYPORT_TEST_ENDURANCE"); v != "" {
		if duration, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	if v := os.Getenv("SALLYPORT_TEST_SALLYPORTS"); v != "" {
		if servers, err = strconv.Atoi(v); err != nil || servers < 1 {
			t.Fatalf("SALLYPORT_TEST_SALLYPORTS=%s (%v)", v, err)
		}
	}
	p := newPlace(t, bin)
	all := make([]*sallyport, servers)
	for i := range all {
		all[i] = p.serve(t, fmt.Sprint("sallyport", i))
	}
	if _, err := all[0].run(t.Context(), "", "def twice(x):\n    return 2 * x\nsave_tool(twice)"); err != nil {
		t.Fatal(err)
	}

	l := &ledger{counts: map[string][]int{}, last: map[string]int{}}
	p.handOver(t, all, l)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var workers sync.WaitGroup
	for i, s := range all {
		for range 2 {
			workers.Go(func() { s.work(t, ctx, i, l) })
		}
		workers.Go(func() { s.alone(t, ctx, i, l) })
	}
	workers.Go(func() { p.watch(t, ctx) })
	workers.Wait()

	for i, s := range all {
		if err := s.client.Close(); err != nil {
			t.Errorf("Sallyport %d ends with %v", i, err)
		}
	}
	p.left(t)
	p.reconcile(t, l)
	p.left(t)
	if t.Failed() {
		for _, s := range all {
			log, _ := os.ReadFile(s.logs)
			t.Logf("%s: …%s", filepath.Base(s.logs), log[max(0, len(log)-4<<10):])
		}
	}
}

// handOver has a session go around once, whatever the load brings.
func (p *place) handOver(t *testing.T, all []*sallyport, l *ledger) {
	t.Helper()
	const name = "handed"
	for i := range len(all) + 1 {
		by := i % len(all)
		text, err := all[by].run(t.Context(), name, fmt.Sprintf(count, name))
		if err == nil {
			err = l.enter(name, text, by)
		}
		if err == nil {
			_, err = p.command(t.Context(), "sessions", "suspend", name)
		}
		if err != nil {
			t.Fatalf("Sallyport %d: %v", by, err)
		}
	}
}

// work uses named sessions in turn until ctx is done.
func (s *sallyport) work(t *testing.T, ctx context.Context, by int, l *ledger) {
	for i := by; ctx.Err() == nil && !t.Failed(); i++ {
		name := fmt.Sprint("shared-", (i+rand.IntN(2))%sessions)
		for range 1 + rand.IntN(3) {
			// What has begun goes on to its end.
			text, err := s.run(t.Context(), name, fmt.Sprintf(count, name))
			if err != nil && elsewhere(err) {
				l.mu.Lock()
				l.turned++
				l.mu.Unlock()
				break
			}
			if err == nil {
				err = l.enter(name, text, by)
			}
			if err != nil {
				t.Errorf("Sallyport %d, session %s: %v", by, name, err)
				return
			}
		}
		if rand.IntN(2) == 0 {
			// Somebody else may have it awake, or have laid it down.
			if _, err := s.place.command(t.Context(), "sessions", "suspend", name); err == nil {
				l.mu.Lock()
				l.slept++
				l.mu.Unlock()
			}
		}
	}
}

// alone uses the session that the Sallyport has for itself.
func (s *sallyport) alone(t *testing.T, ctx context.Context, by int, l *ledger) {
	name := fmt.Sprint("own-", by)
	for ctx.Err() == nil && !t.Failed() {
		text, err := s.run(t.Context(), "", fmt.Sprintf(count, name))
		if err == nil {
			err = l.enter(name, text, by)
		}
		if err != nil {
			t.Errorf("Sallyport %d, its own session: %v", by, err)
			return
		}
		pause(ctx, time.Duration(rand.IntN(4000))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watch lists the sessions now and then: each is in one place.
func (p *place) watch(t *testing.T, ctx context.Context) {
	for ctx.Err() == nil && !t.Failed() {
		out, err := p.command(t.Context(), "sessions", "list", "--json")
		var list struct {
			Sessions []struct{ Name, Status, Address string }
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		if err != nil {
			t.Errorf("sessions list: %v\n%.500s", err, out)
			return
		}
		seen := map[string]bool{}
		for _, one := range list.Sessions {
			if seen[one.Address] || one.Status == "gone" {
				t.Errorf("sessions list: %+v", list.Sessions)
			}
			seen[one.Address] = true
		}
		pause(ctx, time.Second)
	}
}

// reconcile holds the answers against each other and against what is kept.
func (p *place) reconcile(t *testing.T, l *ledger) {
	t.Helper()
	calls := 0
	for name, list := range l.counts {
		calls += len(list)
		if err := whole(list); err != nil {
			t.Errorf("session %s: %v", name, err)
		}
	}
	if err := whole(l.totals); err != nil {
		t.Errorf("all sessions: %v", err)
	}
	s := p.serve(t, "after")
	for name, list := range l.counts {
		if strings.HasPrefix(name, "own-") {
			continue
		}
		if text, err := s.run(t.Context(), name, `print(n, load_memory("of-`+name+`"))`); err != nil || strings.TrimSpace(text) != fmt.Sprint(len(list), " ", len(list)) {
			t.Errorf("session %s was answered %d times, and has %q (%v)", name, len(list), text, err)
		}
	}
	if text, err := s.run(t.Context(), "", `print(load_memory("total"))`); err != nil || strings.TrimSpace(text) != fmt.Sprint(calls) {
		t.Errorf("%d calls were answered, and %q are remembered (%v)", calls, text, err)
	}
	if err := s.client.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%d calls answered, in %d sessions, which went to another Sallyport %d times and to sleep by command %d times; %d calls were turned away, because the session was elsewhere",
		calls, len(l.counts), l.moved, l.slept, l.turned)
}

// left waits until nothing is left but what is to be kept.
func (p *place) left(t *testing.T) {
	t.Helper()
	find := func() (left []string) {
		left = p.host.Left()
		for pattern, keep := range map[string]func(name string) bool{
			"snapshots/*": func(n string) bool {
				return n == "key" || n == ".writing.lock" || strings.HasPrefix(n, "base-") || strings.HasPrefix(n, "session-")
			},
			"sessions/*": func(n string) bool { return strings.HasSuffix(n, ".json") },
			"logs/*":     func(n string) bool { return n == "named" },
		} {
			found, _ := filepath.Glob(filepath.Join(p.state, pattern))
			for _, path := range found {
				if !keep(filepath.Base(path)) {
					left = append(left, path)
				}
			}
		}
		return left
	}
	var left []string
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if left = find(); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	records, _ := filepath.Glob(filepath.Join(p.state, "sessions", "*.json"))
	for _, path := range records {
		data, err := os.ReadFile(path)
		var r struct{ Status string }
		if err != nil || json.Unmarshal(data, &r) != nil || r.Status != "suspended" {
			t.Errorf("%s: %s (%v)", path, data, err)
		}
	}
}

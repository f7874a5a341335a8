//go:build linux

package sandboxtest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

// channelOfGuest finds the guest's own end of the conversation. Other
// descriptors would take a frame and break something else.
const channelOfGuest = `
import gc
channel = next(o for o in gc.get_objects() if type(o).__name__ == "Channel")
`

// leftOver leaves a thread of one execution running until the next one, which
// may make calls. Neither the thread's calls nor the frames that it forges with
// the number of its own execution reach a server. What the next execution does
// itself is the control.
func (s *suite) leftOver(t *testing.T) {
	const leave = `
go, said = threading.Event(), {}
def call(who):
    try:
        said[who] = "answered" if runtime.search_tool_docs_sync(who) is not None else ""
    except Exception as e:
        said[who] = str(e)
def forge(who, run):
    put(channel.fd_out, frame({"type": "call", "id": 1 << 40, "run": run, "method": "search_tool_docs", "params": {"query": "forged: " + who}}))
def wait():
    go.wait()
    call("left over")
    forge("left over", run)
run = channel.run
left = threading.Thread(target=wait, daemon=True)
left.start()`
	var mu sync.Mutex
	asked := map[string]bool{}           // the parameters of each call
	arrived := func(query string) bool { // the lock is held
		for params := range asked {
			if strings.Contains(params, query) {
				return true
			}
		}
		return false
	}
	has := func(query string) bool {
		mu.Lock()
		defer mu.Unlock()
		return arrived(query)
	}
	answer := func(_ context.Context, call wire.Call) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[string(call.Params)] = true
		if strings.Contains(string(call.Params), `"arrived?"`) && arrived("forged: this one") {
			return json.RawMessage(`[{"server":"x","tool":"yes"}]`), nil
		}
		return json.RawMessage(`[]`), nil
	}
	s.needProcesses(t) // no thread is left over
	sess := s.start(t, s.backend(t), s.spec())
	sess.must(t, hostileProgram+channelOfGuest+leave)
	r := sess.beginWith(t, wire.Exec{Code: `go.set(); left.join(); print(said)`}, answer).wait(t, settleTime)
	if want := "belongs to an earlier execution"; r.Err != nil || !strings.Contains(r.Stdout, want) {
		t.Errorf("the thread got %q, want an error that says %q (%v, %s)", r.Stdout, want, r.Err, r.Stderr)
	}
	r = sess.beginWith(t, wire.Exec{Code: `call("this one"); print(said["this one"]); forge("this one", channel.run)
while not runtime.search_tool_docs_sync("arrived?"): time.sleep(0.02) # a call that comes after the end is dropped`}, answer).wait(t, settleTime)
	if r.Err != nil || r.Stdout != "answered\n" {
		t.Errorf("control: got %q, want an answer (%v, %s)", r.Stdout, r.Err, r.Stderr)
	}
	// The calls of an execution may still be on their way when it has ended.
	for end := time.Now().Add(settleTime); !(has(`"this one"`) && has("forged: this one")) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	mu.Lock()
	t.Logf("asked: %q", slices.Sorted(maps.Keys(asked)))
	mu.Unlock()
	if !has(`"this one"`) || !has("forged: this one") {
		t.Error("control: the calls of the execution itself did not arrive")
	}
	if has(`"left over"`) || has("forged: left over") {
		t.Error("a call of the thread that was left over arrived")
	}
	sess.destroy(t)
}

// idleFlood has a thread send frames without end while its session is idle: the
// conversation counts what the host spends on them, from which the session is
// charged. A session that is quiet is the control.
func (s *suite) idleFlood(t *testing.T) {
	const flood = `
def send():
    data = frame({"type": "call", "id": 1 << 40, "run": run, "method": "call_tool", "params": {}})
    while True:
        put(channel.fd_out, data)
run = channel.run
threading.Thread(target=send, daemon=True).start()`
	s.needProcesses(t)
	b := s.backend(t)
	quiet := s.start(t, b, s.spec())
	quiet.must(t, hostileProgram+channelOfGuest)
	loud := s.start(t, b, s.spec())
	loud.must(t, hostileProgram+channelOfGuest+flood)
	before, beforeLoud := quiet.conn.Work(), loud.conn.Work()
	const enough = 20 * time.Millisecond // some 2000 frames
	for end := time.Now().Add(settleTime); loud.conn.Work()-beforeLoud < enough && loud.conn.Err() == nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if got := loud.conn.Work() - beforeLoud; got < enough {
		t.Errorf("a flood while idle is charged with %v, want %v or more (%v)", got, enough, loud.conn.Err())
	}
	if got := quiet.conn.Work() - before; got >= enough {
		t.Errorf("control: a quiet session is charged with %v", got)
	}
	loud.usable(t, "the session with the flood")
	quiet.usable(t, "its neighbour")
	loud.destroy(t)
	quiet.destroy(t)
}

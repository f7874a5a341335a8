//go:build linux

package sandboxtest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

//go:embed hostile.py
var hostileProgram string

// An assault is what hostile code does to the channel.
type assault struct {
	name string
	code string
	// dies means that the conversation must end by itself, within a bound,
	// because the guest sent an invalid frame.
	dies bool
	// grows means that without a budget the host's memory grows beyond the
	// bound. The suite tries that first: otherwise staying below it would prove
	// nothing.
	grows bool
	// answer serves the guest's calls.
	answer func(context.Context, wire.Call) (json.RawMessage, error)
}

// growth bounds what an assault may cost the host's memory.
const growth = 256 << 20

// never holds a call's arguments and does not answer, like a slow server.
func never(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	<-ctx.Done()
	runtime.KeepAlive(call.Params)
	return nil, ctx.Err()
}

// results answers each call with a result of the given size, as servers do: it
// is charged when it arrives, or the call fails.
func results(size int64) func(context.Context, wire.Call) (json.RawMessage, error) {
	return func(ctx context.Context, _ wire.Call) (json.RawMessage, error) {
		if err := budget.From(ctx).Acquire(ctx, size); err != nil {
			return nil, err
		}
		b := bytes.Repeat([]byte("x"), int(size))
		b[0], b[size-1] = '"', '"'
		return b, nil
	}
}

// listing answers with 30 MB that the host made itself, for which the
// conversation has reserved room.
func listing(context.Context, wire.Call) (json.RawMessage, error) {
	const size = 30 << 20
	b := bytes.Repeat([]byte("x"), size)
	b[0], b[size-1] = '"', '"'
	return b, nil
}

var small = json.RawMessage(`{"content":[]}`)

func quick(context.Context, wire.Call) (json.RawMessage, error) { return small, nil }

func assaults() []assault {
	return []assault{
		{name: "forged done", code: `
for i in range(100):
    everywhere(frame({"type": "done", "id": i, "status": "ok", "exitCode": 0}))
forever()`},
		{name: "forged done, then an answer", code: `
for i in range(100):
    everywhere(frame({"type": "done", "id": i, "status": "error", "exitCode": 99}))`},
		{name: "truncated", dies: true, code: `
everywhere(struct.pack(">I", 1000) + b'{"type":"ca')
os._exit(0)`},
		{name: "truncated and silent", code: `
everywhere(struct.pack(">I", 1000) + b'{"type":"ca')
forever()`},
		{name: "oversized", dies: true, code: `everywhere(b"\xff\xff\xff\xff" + b"x" * 100000); forever()`},
		{name: "just over the limit", dies: true, code: `everywhere(struct.pack(">I", (32 << 20) + 1) + b"{}"); forever()`},
		{name: "promised and not sent", code: `everywhere(struct.pack(">I", 32 << 20)); forever()`},
		{name: "empty", dies: true, code: `everywhere(b"\0\0\0\0"); forever()`},
		{name: "noise", dies: true, code: `everywhere(os.urandom(1 << 20)); forever()`},
		{name: "not JSON", dies: true, code: `everywhere(frame(b"{" * 1000)); forever()`},
		{name: "not an object", dies: true, code: `everywhere(frame(b"[1,2,3]")); forever()`},
		{name: "deep", dies: true, code: `everywhere(frame(b'{"type":"call","id":1,"run":1,"method":"x","params":' + b"[" * 5000000)); forever()`},
		{name: "huge number", dies: true, code: `everywhere(frame(b'{"type":"done","id":1' + b"0" * 1000000 + b"}")); forever()`},
		{name: "unknown type", dies: true, code: `everywhere(frame({"type": "sudo"})); forever()`},
		{name: "wrong protocol", dies: true, code: `everywhere(frame({"type": "ready", "protocol": 99, "runtime": "x"})); forever()`},
		{name: "ready again", code: `
for i in range(1000):
    everywhere(frame({"type": "ready", "protocol": 1, "runtime": "9.9.9"}))`},
		{name: "many artifacts", code: `
everywhere(frame(b'{"type":"done","id":1,"status":"ok","exitCode":0,"artifacts":[' + b"{}," * 10000000 + b"{}]}"))
forever()`},
		{name: "artifacts with evil names", code: `
everywhere(frame({"type": "done", "id": 1, "status": "ok", "exitCode": 0, "artifacts": [{"path": "../../../etc/passwd", "size": 1 << 60}]}))`},
		{name: "call flood", code: `
data = b"".join(frame({"type": "call", "id": i, "run": 1, "method": "call_tool", "params": {}}) for i in range(200000))
everywhere(data)
forever()`, answer: never},
		{name: "large calls", grows: true, code: `calls(500, b"y" * (4 << 20)); forever()`, answer: never},
		{name: "large calls of other numbers", grows: true, code: `calls(100, b"y" * (31 << 20)); forever()`, answer: never},
		{name: "large calls of one number", code: `
data = frame({"type": "call", "id": 1, "run": 1, "method": "call_tool", "params": {"x": "y" * (16 << 20)}})
for run in range(64):
    everywhere(data)
forever()`, answer: never},
		{name: "unread answers", grows: true, code: `
calls(2000, b"")
forever()`, answer: results(10 << 20)},
		{name: "large results side by side", grows: true, code: `
calls(127, b"")
forever()`, answer: results(50 << 20)},
		{name: "unread listings", grows: true, code: `
calls(100, b"", b"memory_list")
forever()`, answer: listing},
		{name: "calls of no execution", code: `
for run in (0, 2, 1 << 60):
    everywhere(b"".join(frame({"type": "call", "id": i, "run": run, "method": "call_tool", "params": {}}) for i in range(20000)))
forever()`, answer: never},
		{name: "a byte at a time", code: `
data = frame({"type": "ready", "protocol": 1, "runtime": "3"})
end = time.monotonic() + 3
while time.monotonic() < end:
    for i in range(len(data)):
        everywhere(data[i:i + 1])`},
		{name: "closed", code: `
for fd in channel_fds():
    try:
        os.close(fd)
    except OSError:
        pass
forever()`},
		{name: "duplicates from threads", code: `
data = frame({"type": "call", "id": 7, "run": 1, "method": "call_tool", "params": {"a": 1}})
def work():
    for i in range(2000):
        everywhere(data)
th = [threading.Thread(target=work) for _ in range(8)]
[x.start() for x in th]
[x.join() for x in th]`, answer: quick},
		{name: "late, from a child", code: `
if os.fork() == 0:
    time.sleep(1)
    for i in range(100):
        everywhere(frame({"type": "done", "id": i, "status": "exit", "exitCode": 77}))
        everywhere(frame({"type": "call", "id": i, "run": i, "method": "call_tool", "params": {}}))
    os._exit(0)`, answer: never},
		{name: "late noise, from a child", code: `
if os.fork() == 0:
    time.sleep(1)
    everywhere(os.urandom(100000))
    os._exit(0)`},
		{name: "output noise", code: `
for fd in init_fds():
    try:
        put(fd, b"\xff" * 100)
    except OSError:
        pass
forever()`},
		{name: "output forged", code: `
for fd in init_fds():
    try:
        put(fd, output(b"o", b"forged") + output(b"n", b"0" * 32) + output(b"x", b'{"code":0}') + output(b"?", b""))
    except OSError:
        pass
forever()`},
		{name: "output exit nonsense", code: `
for fd in init_fds():
    try:
        put(fd, output(b"x", b'{"code":1e99,"signal":-5}'))
    except OSError:
        pass
forever()`},
		{name: "frames on standard output", code: `
import sys
for i in range(1000):
    os.write(1, frame({"type": "done", "id": i, "status": "ok", "exitCode": 0}))
    os.write(2, output(b"n", b"0" * 32))`},
	}
}

// hostile lets code inside a guest abuse its channel. Only its own sandbox may
// be affected.
func (s *suite) hostile(t *testing.T) {
	b := s.backend(t)
	bystander := s.start(t, b, s.spec())
	bystander.must(t, "kept = 42")
	for _, a := range assaults() {
		t.Run(a.name, func(t *testing.T) {
			if a.grows {
				s.control(t, b, &a)
			}
			s.assault(t, b, &a, bystander)
		})
	}
	t.Run("left over thread", s.leftOver)
	t.Run("flood while idle", s.idleFlood)
}

// control proves that an assault makes the host's memory grow if the budget is
// a hundred times as large.
func (s *suite) control(t *testing.T, b sandbox.Engine, a *assault) {
	sess := s.startWith(t, b, s.spec(), guest.Options{Budget: budget.NewHost(100).NewSandbox()})
	runtime.GC()
	before := heap()
	var answering atomic.Int64
	sess.beginWith(t, wire.Exec{Code: s.hostileProgram() + a.code}, func(ctx context.Context, call wire.Call) (json.RawMessage, error) {
		answering.Add(1)
		defer answering.Add(-1)
		return a.answer(ctx, call)
	})
	grown := int64(0)
	// A busy machine may take long, as long as it makes progress.
	for end := time.Now().Add(5 * settleTime); grown <= growth && sess.conn.Err() == nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now := heap() - before; now > grown {
			grown, end = now, time.Now().Add(5*settleTime)
		}
	}
	ended := sess.conn.Err()
	sess.destroy(t)
	// Outstanding answers would otherwise count as memory that the assault
	// uses.
	for end := time.Now().Add(settleTime); answering.Load() > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	if grown <= growth {
		t.Errorf("without a budget the host's heap grew by %d MB only, want more than %d (%v)", grown>>20, int64(growth)>>20, ended)
	}
	debug.FreeOSMemory()
}

func (s *suite) assault(t *testing.T, b sandbox.Engine, a *assault, bystander *session) {
	goroutines := runtime.NumGoroutine()
	sess := s.start(t, b, s.spec())
	runtime.GC()
	before := heap()
	e := sess.beginWith(t, wire.Exec{Code: s.hostileProgram() + a.code}, a.answer)

	// Meanwhile the host's memory is watched and the neighbour must keep
	// working.
	var worst int64
	watch := func(d time.Duration, until <-chan struct{}) bool {
		for end := time.Now().Add(d); time.Now().Before(end); {
			select {
			case <-until:
				return true
			case <-time.After(20 * time.Millisecond):
				worst = max(worst, heapSince(before))
			}
		}
		return false
	}
	if a.dies {
		if !watch(settleTime, sess.conn.Dead()) {
			t.Errorf("the conversation goes on after an invalid frame")
		}
	} else {
		watch(2*time.Second, sess.conn.Dead())
	}
	if got := bystander.must(t, "print(kept)"); got != "42\n" {
		t.Errorf("the neighbouring sandbox answers %q", got)
	}
	// Whatever state the conversation is in, the session's next execution
	// neither hangs its caller nor breaks the host.
	if sess.conn.Err() == nil {
		select {
		case <-e.x.Done():
			next := sess.begin(t, "print('next')")
			if next.x != nil {
				watch(time.Second, next.x.Done())
			}
		default:
		}
	}
	// The reason ends up in logs and reaches the agent: the guest must not
	// control its size.
	state := "alive"
	if err := sess.conn.Err(); err != nil {
		state = err.Error()
		if len(state) > 16<<10 {
			t.Errorf("the reason for the conversation's end takes %d bytes", len(state))
		}
	}
	t.Logf("the conversation is %.200s; the host's heap grew by at most %d MB", state, worst>>20)
	if worst > growth {
		t.Errorf("the host's heap grew by %d MB", worst>>20)
	}

	closed := make(chan struct{})
	go func() {
		_ = sess.conn.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(settleTime):
		t.Fatal("Close hangs")
	}
	e.wait(t, settleTime)
	sess.destroy(t)
	if x := sess.exit(t); x.Reason == sandbox.EngineDied {
		t.Errorf("exit %+v", x)
	}
	// A frame of the largest size may still be in a decoder.
	deadline := time.Now().Add(3 * settleTime)
	for runtime.NumGoroutine() > goroutines {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after\n%s", goroutines, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := bystander.must(t, "print(kept)"); got != "42\n" {
		t.Errorf("afterwards the neighbouring sandbox answers %q", got)
	}
}

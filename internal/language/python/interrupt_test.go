//go:build unix

package python_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest/guesttest"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestInterrupts: whatever code does, the host's SIGINT ends it where that can
// be, tears no frame, and the session goes on.
func TestInterrupts(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: an interrupt must reach the code within some milliseconds")
	}
	programs := []struct{ name, code, stderr string }{
		{"spin", "while True: pass", `File "<cell`},
		{"sleep", "import time\ntime.sleep(60)", "time.sleep(60)"},
		{"spin while awaiting", "async def f():\n    while True: pass\nawait f()", "while True: pass"},
		{"waiting for a reply", "await mcp_my_echo.say(result=1, sleep=60)", "await mcp_my_echo.say"},
		{"waiting for a reply in a function", "async def f():\n    await mcp_my_echo.say(result=1, sleep=60)\nawait f()", "in f"},
		{"waiting in a sync call", "runtime.search_tool_docs_sync('x')", "search_tool_docs_sync"},
		{"subprocess", "import subprocess\nsubprocess.run(['sleep', '60'])", "KeyboardInterrupt"},
		{"thread join", "import threading\nt = threading.Thread(target=time.sleep, args=(0.6,)); t.start(); t.join()", "t.join()"},
		{"calls without end", "while True: await mcp_my_echo.order(1, 2)", "KeyboardInterrupt"},
		{"output without end", "while True: print('x' * 10)", "KeyboardInterrupt"},
		{"asyncio sleep", "await asyncio.sleep(60)", "await asyncio.sleep(60)"},
		{"asyncio spin", "await asyncio.sleep(0)\nwhile True: pass", "while True: pass"},
		{"asyncio yields", "while True: await asyncio.sleep(0)", "KeyboardInterrupt"},
		{"asyncio.run", "asyncio.run(asyncio.sleep(60))", "KeyboardInterrupt"},
		{"asyncio.run while awaiting", "await asyncio.sleep(0)\nasyncio.run(asyncio.sleep(60))", "KeyboardInterrupt"},
		{"reply in the loop", "await mcp_my_echo.say(result=1, sleep=60)", "await mcp_my_echo.say"},
		{"gather", "await asyncio.gather(*[mcp_my_echo.say(result=1, sleep=60) for _ in range(10)])", "KeyboardInterrupt"},
		{"calls without end in the loop", "while True: await mcp_my_echo.order(1, 2)", "KeyboardInterrupt"},
		{"loop with a thread", "await asyncio.gather(asyncio.sleep(60), asyncio.to_thread(time.sleep, 0.5))", "KeyboardInterrupt"},
		{"own handler", "import signal\nsignal.signal(signal.SIGINT, lambda *a: 1/0)\ntime.sleep(60)", "ZeroDivisionError"},
		{"after an own handler", "time.sleep(60)", "KeyboardInterrupt"},
	}
	p := launch(t)
	p.run(t, wire.Exec{Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, say)
	for _, prog := range programs {
		if skipped(t, prog.code) {
			continue
		}
		if prog.name == "asyncio sleep" {
			p.exec(t, "import asyncio")
		}
		t.Run(prog.name, func(t *testing.T) {
			h := guesttest.NewHandler(say)
			if prog.name == "waiting in a sync call" {
				h.Answer = never
			}
			x, err := p.Start(wire.Exec{Code: "print('go')\n" + prog.code, Grants: []string{"my-echo"}}, h)
			if err != nil {
				t.Fatal(err)
			}
			<-h.Arrived
			time.Sleep(50 * time.Millisecond)
			p.interrupt()
			select {
			case <-x.Done():
			case <-time.After(10 * time.Second):
				t.Fatalf("not interrupted; stderr %q", h.Stderr())
			}
			o, err := x.Result()
			if err != nil {
				t.Fatal(err)
			}
			want := wire.StatusInterrupted
			if prog.name == "own handler" {
				want = wire.StatusError
			}
			if o.Status != want || !strings.Contains(h.Stderr(), prog.stderr) || strings.Contains(h.Stderr(), "sallyport_guest") {
				t.Errorf("status %s, stderr %q; want %q in it", o.Status, h.Stderr(), prog.stderr)
			}
			if r := p.run(t, wire.Exec{Code: "(await mcp_my_echo.order(41, 1)).m", Grants: []string{"my-echo"}}, say); r.stdout != "41\n" {
				t.Errorf("afterwards: %v %q %q", r.err, r.stdout, r.stderr)
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		for range 5 {
			p.interrupt()
			time.Sleep(5 * time.Millisecond)
		}
		if r := p.exec(t, "1"); r.stdout != "1\n" {
			t.Error(r)
		}
	})
	t.Run("caught", func(t *testing.T) {
		h := guesttest.NewHandler(nil)
		x, err := p.Start(wire.Exec{Code: "print('go')\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('caught')"}, h)
		if err != nil {
			t.Fatal(err)
		}
		<-h.Arrived
		time.Sleep(20 * time.Millisecond)
		p.interrupt()
		if o, err := x.Result(); err != nil || o.Status != wire.StatusOK || h.Stdout() != "go\ncaught\n" {
			t.Error(o, err, h.Stdout(), h.Stderr())
		}
	})
}

// TestInterruptStorm: interrupts at every moment must never tear a frame.
func TestInterruptStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: the last interrupt must have arrived after 200 ms")
	}
	p := launch(t)
	for _, setup := range []string{"1", "import asyncio", "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()"} {
		p.run(t, wire.Exec{Code: setup, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, say)
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(700 * time.Microsecond):
					p.interrupt()
				}
			}
		}()
		statuses := map[wire.Status]int{}
		for range 200 {
			r := p.run(t, wire.Exec{Code: "for i in range(5):\n    (await mcp_my_echo.order(i, 2)).m\n    print(i)", Grants: []string{"my-echo"}}, say)
			if r.err != nil {
				t.Fatal(r.err, r.stderr)
			}
			statuses[r.Status]++
		}
		close(stop)
		<-stopped
		// The last interrupt is on its way through init: it belongs to the
		// storm, not to what follows.
		time.Sleep(200 * time.Millisecond)
		if r := p.run(t, wire.Exec{Code: "(await mcp_my_echo.order(1, 2)).m", Grants: []string{"my-echo"}}, say); r.stdout != "1\n" {
			t.Error(r)
		}
		t.Log(setup, statuses)
	}
}

//go:build linux

package wasi

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// sub is a subscription with the number of its place in the list as userdata.
type sub struct {
	kind    byte
	fd      uint32 // or the clock
	timeout uint64
	abs     uint16
}

// poll polls and shows the events: "place:kind" and the error, if any.
func (i *instance) poll(subs ...sub) (string, Errno) {
	i.t.Helper()
	var p []byte
	for n, s := range subs {
		b := make([]byte, subscriptionSize)
		binary.LittleEndian.PutUint64(b, uint64(n))
		b[8] = s.kind
		binary.LittleEndian.PutUint32(b[16:], s.fd)
		binary.LittleEndian.PutUint64(b[24:], s.timeout)
		binary.LittleEndian.PutUint16(b[40:], s.abs)
		p = append(p, b...)
	}
	i.put(atPath, string(p))
	if errno := i.call("poll_oneoff", atPath, atBuffer, uint64(len(subs)), atResult); errno != success {
		return "", errno
	}
	var events []string
	for n := range i.u32(atResult) {
		e := i.bytes(atBuffer+n*eventSize, eventSize)
		s := fmt.Sprintf("%d:%d", binary.LittleEndian.Uint64(e), e[10])
		if errno := Errno(binary.LittleEndian.Uint16(e[8:])); errno != success {
			s += " " + errno.Error()
		}
		events = append(events, s)
	}
	return strings.Join(events, ", "), success
}

func TestPoll(t *testing.T) {
	const ms = uint64(time.Millisecond)
	cfg, stdin, stdout := streams(t)
	cfg.Now = func() time.Time { return time.Unix(1000, 0) }
	cfg.Monotonic = func() time.Duration { return 50 * time.Second }
	i := newInstance(t, cfg)
	file := uint32(i.mustOpen("workspace/f", openCreate, readWrite))
	clock := func(id uint32, timeout uint64) sub { return sub{eventClock, id, timeout, 0} }
	until := func(id uint32, at uint64) sub { return sub{eventClock, id, at, clockAbsTime} }
	in, out := sub{kind: eventRead}, sub{kind: eventWrite, fd: 1}
	forever := clock(clockMonotonic, math.MaxUint64)
	ready := func() {
		if _, err := stdin.WriteString("x"); err != nil {
			t.Fatal(err)
		}
	}
	drain := func() {
		if _, errno := i.read(0, 100); errno != success {
			t.Fatal(errno)
		}
	}
	for _, tt := range []struct {
		name    string
		subs    []sub
		input   bool
		answers []Outcome
		want    string
		errno   Errno
		waits   string
	}{
		{name: "sleep", subs: []sub{clock(clockMonotonic, 5*ms)}, want: "0:0", waits: "[{-1 false 5ms}]"},
		{name: "until", subs: []sub{until(clockRealtime, 1000_001000000)}, want: "0:0", waits: "[{-1 false 1ms}]"},
		{name: "until, monotonic", subs: []sub{until(clockMonotonic, 50_002000000)}, want: "0:0", waits: "[{-1 false 2ms}]"},
		{name: "until a time that has passed", subs: []sub{until(clockMonotonic, 1)}, want: "0:0", waits: "[{-1 false 0s}]"},
		{name: "the earlier of two", subs: []sub{clock(clockMonotonic, 500*ms), clock(clockRealtime, 3*ms)}, want: "1:0", waits: "[{-1 false 3ms}]"},
		{name: "interrupted", subs: []sub{forever}, answers: []Outcome{Interrupted}, errno: errInterrupted, waits: "[{-1 false 2562047h47m16.854775807s}]"},
		{name: "input", subs: []sub{forever, in}, input: true, want: "1:1", waits: "[{0 false 2562047h47m16.854775807s}]"},
		{name: "input alone", subs: []sub{in}, input: true, want: "0:1", waits: "[{0 false -1ns}]"},
		{name: "no input in time", subs: []sub{in, clock(clockMonotonic, 2*ms)}, want: "1:0", waits: "[{0 false 2ms}]"},
		{name: "look for input", subs: []sub{in, clock(clockMonotonic, 0)}, want: "1:0", waits: "[{0 false 0s}]"},
		{name: "input, interrupted", subs: []sub{in}, answers: []Outcome{Interrupted}, errno: errInterrupted, waits: "[{0 false -1ns}]"},
		{name: "output", subs: []sub{out}, want: "0:2", waits: "[{1 true -1ns}]"},
		{name: "one of two streams", subs: []sub{in, out}, want: "1:2", waits: "[{0 false 0s} {1 true 0s}]"},
		{name: "both streams", subs: []sub{in, out}, input: true, want: "0:1, 1:2", waits: "[{0 false 0s} {1 true 0s}]"},
		{name: "the same twice", subs: []sub{in, in}, input: true, want: "0:1, 1:1", waits: "[{0 false -1ns}]"},
		{name: "file", subs: []sub{forever, {kind: eventRead, fd: file}, {kind: eventWrite, fd: file}}, want: "1:1, 2:2", waits: "[]"},
		{name: "file and no input", subs: []sub{in, {kind: eventRead, fd: file}}, want: "1:1", waits: "[{0 false 0s}]"},
		{name: "bad ones", subs: []sub{{kind: eventRead, fd: 99}, {kind: eventWrite}, {kind: eventRead, fd: 1}, {kind: eventRead, fd: rootFD}, {kind: 9}, clock(clockProcess, 1), forever},
			want: "0:1 bad file descriptor, 1:2 bad file descriptor, 2:1 bad file descriptor, 3:1 bad file descriptor, 4:9 invalid argument, 5:0 invalid argument", waits: "[]"},
		{name: "none", errno: errInvalid, waits: "[]"},
	} {
		i.waiter.calls, i.waiter.answers = nil, tt.answers
		if tt.input {
			ready()
		}
		got, errno := i.poll(tt.subs...)
		waits := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(i.waiter.calls), fmt.Sprintf("{%d ", cfg.Stdin), "{0 "), fmt.Sprintf("{%d ", cfg.Stdout), "{1 ")
		if got != tt.want || errno != tt.errno || waits != tt.waits {
			t.Errorf("%s: got %q, %v after %s, want %q, %v after %s", tt.name, got, errno, waits, tt.want, tt.errno, tt.waits)
		}
		if tt.input {
			drain()
		}
	}
	if errno := i.call("poll_oneoff", 0, 0, maxSubscriptions+1, atResult); errno != errInvalid {
		t.Errorf("%d subscriptions: %v, want %v", maxSubscriptions+1, errno, errInvalid)
	}
	stdin.Close()
	if got, errno := i.poll(in); got != "0:1" || errno != success {
		t.Errorf("a stream that has ended: %q, %v, want that it is ready", got, errno)
	}
	stdout.Close()
}

// TestPollOfBusyStreams waits for input and for room at once, while neither is there.
func TestPollOfBusyStreams(t *testing.T) {
	cfg, stdin, _ := streams(t)
	i := newInstance(t, cfg)
	i.must("fd_fdstat_set_flags", 1, flagNonblock)
	for {
		if _, errno := i.write(1, strings.Repeat("x", 4096)); errno == errAgain {
			break
		} else if errno != success {
			t.Fatal(errno)
		}
	}
	in, out := sub{kind: eventRead}, sub{kind: eventWrite, fd: 1}
	if got, errno := i.poll(in, out, sub{eventClock, clockMonotonic, 30e6, 0}); got != "2:0" || errno != success {
		t.Errorf("got %q, %v, want that the time has passed", got, errno)
	}
	time.AfterFunc(20*time.Millisecond, func() { stdin.WriteString("x") })
	if got, errno := i.poll(in, out); got != "0:1" || errno != success {
		t.Errorf("got %q, %v, want input", got, errno)
	}
}

// cpu is a waiter that measures CPU time.
type cpu struct{ waiter }

func (*cpu) CPUTime() time.Duration { return 7 }

func TestCPUTime(t *testing.T) {
	i := newInstance(t, Config{Waiter: &cpu{}})
	for _, id := range []uint64{clockProcess, clockThread} {
		i.must("clock_time_get", id, 0, atResult)
		if got := i.u64(atResult); got != 7 {
			t.Errorf("clock %d shows %d, want the waiter's 7", id, got)
		}
	}
}

func TestCallWithoutHost(t *testing.T) {
	i := newInstance(t, Config{})
	if _, err := i.mod.ExportedFunction("sched_yield").Call(context.Background()); err == nil {
		t.Error("a call without a host succeeded")
	}
	i.must("sched_yield")
}

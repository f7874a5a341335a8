package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseEvent(t *testing.T) {
	const us = time.Microsecond
	for line, want := range map[string]event{
		`  my name-12-123   [001] d..3. 77.000123: sched_waking: comm=a b pid=5 prio=120 target_cpu=001`:                                        {at: 77*time.Second + 123*us, thread: 123, kind: waking, other: 5},
		`  x-123   [001] ..... 77.000124: sys_write(fd: 0xb, buf: 0x3be, count: 0x71)`:                                                          {at: 77*time.Second + 124*us, thread: 123, kind: enter, call: "write", fd: 11},
		`  x-123   [001] ..... 77.000125: sys_write -> 0x71`:                                                                                    {at: 77*time.Second + 125*us, thread: 123, kind: exit, call: "write", result: 0x71},
		`  x-123   [001] ..... 77.000126: sys_read -> 0xfffffffffffffff5`:                                                                       {at: 77*time.Second + 126*us, thread: 123, kind: exit, call: "read", result: -1},
		`  x-123   [001] ..... 77.000127: sys_geteuid()`:                                                                                        {at: 77*time.Second + 127*us, thread: 123, kind: enter, call: "geteuid", fd: -1},
		`  x-1 [000] d..2. 0.000001: sched_switch: prev_comm=x prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=y next_pid=2 next_prio=120`:  {at: us, thread: 1, kind: switched, other: 2, blocks: true},
		`  x-1 [000] d..2. 0.000001: sched_switch: prev_comm=x prev_pid=1 prev_prio=120 prev_state=R+ ==> next_comm=y next_pid=2 next_prio=120`: {at: us, thread: 1, kind: switched, other: 2},
	} {
		if got, ok := parseEvent(line); !ok || got != want {
			t.Errorf("parseEvent(%q) = %+v, %v, want %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{"", "CPU:1 [LOST 5 EVENTS]", "x-1 [000] d..2. 0.000001: other: pid=3", "x [000]: sys_read -> 0x1"} {
		if got, ok := parseEvent(line); ok {
			t.Errorf("parseEvent(%q) = %+v, want none", line, got)
		}
	}
}

// A client (thread 1) writes to a server (2, which wakes 3), which answers.
const madeUp = `
x-1 [000] ..... 0.000000: sys_write(fd: 9, buf: 0, count: 0x9)
x-1 [000] d..2. 0.000002: sched_waking: comm=s pid=2 prio=120 target_cpu=001
x-0 [001] d..2. 0.000010: sched_switch: prev_comm=i prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=s next_pid=2 next_prio=120
x-2 [001] ..... 0.000012: sys_read(fd: 0, buf: 0, count: 0x9)
x-2 [001] ..... 0.000013: sys_read -> 0x9
x-2 [001] ..... 0.000020: sys_futex(uaddr: 0, op: 0x81)
x-2 [001] d..2. 0.000021: sched_waking: comm=s pid=3 prio=120 target_cpu=000
x-2 [001] ..... 0.000022: sys_futex -> 0x1
x-0 [000] d..2. 0.000031: sched_switch: prev_comm=i prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=s next_pid=3 next_prio=120
x-3 [000] ..... 0.000032: sys_futex -> 0x0
x-3 [000] ..... 0.000050: sys_write(fd: 1, buf: 0, count: 0x4)
x-3 [000] ..... 0.000051: sys_write -> 0x4
x-1 [000] ..... 0.000055: sys_read(fd: 8, buf: 0, count: 0x9)
x-1 [000] ..... 0.000056: sys_read -> 0x4
`

func TestWalk(t *testing.T) {
	events, err := parseTrace(strings.NewReader(madeUp))
	if err != nil {
		t.Fatal(err)
	}
	server := map[int]string{0: "to", 1: "from"}
	p := &place{
		role: map[int]string{1: "client", 2: "server", 3: "server"},
		pipe: map[int]map[int]string{1: {9: "to", 8: "from"}, 2: server, 3: server},
	}
	calls := p.cut(append(slices.Clone(events), events...), "client", "to", "from")
	if len(calls) != 2 || len(calls[0]) != len(events) {
		t.Fatalf("cut: got %d calls, want 2 of %d events", len(calls), len(events))
	}
	const us = time.Microsecond
	want := []step{
		{0, "client", "in the write, until it wakes server", 2 * us},
		{0, "server", "is woken by client, until it runs", 8 * us},
		{0, "server", "runs, reads the message", 3 * us},
		{0, "server", "computes", 7 * us},
		{0, "server", "system call futex", 1 * us},
		{0, "server", "a thread wakes another, until it runs", 10 * us},
		{0, "server", "system call futex", 1 * us},
		{0, "server", "computes", 18 * us},
		{1, "client", "message from server, no wake-up", 6 * us},
	}
	got := slices.DeleteFunc(p.walk(calls[0]), func(s step) bool { return s.took == 0 })
	var sum time.Duration
	for _, s := range got {
		sum += s.took
	}
	if !slices.Equal(got, want) || sum != calls[0].length() {
		t.Errorf("walk: got %v, which sum to %v, want %v, which sum to %v", got, sum, want, calls[0].length())
	}
	var total time.Duration
	for _, l := range lines(p, calls) {
		total += l.took
	}
	if total != sum {
		t.Errorf("lines: got %v in all, want %v", total, sum)
	}
}

func TestDifferences(t *testing.T) {
	got := differences([]sample{{3, 5, 7}, {9}, {4}})
	if want := []time.Duration{0, 4, -5}; !slices.Equal(got, want) {
		t.Errorf("differences: got %v, want %v", got, want)
	}
}

func TestRoleOf(t *testing.T) {
	for command, want := range map[string]string{
		"sallyport hub run --start": "hub", "runsc-sandbox --platform=systrap boot": "sentry", "runsc-gofer gofer": "gofer",
		"sallyport-wasm-host": "wasm-host", "sallyport-supervisor": "supervisor", "": "guest",
	} {
		if got := roleOf(strings.Fields(command+" x"), false); got != want {
			t.Errorf("roleOf(%q): got %q, want %q", command, got, want)
		}
	}
	if got := roleOf([]string{"sallyport", "serve"}, true); got != "frontend" {
		t.Errorf("roleOf(the first): got %q, want frontend", got)
	}
}

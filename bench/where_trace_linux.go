package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A tracer is an instance of the kernel's tracing, of its own, that records the system
// calls, wake-ups and switches of some processes.
type tracer struct{ dir string }

// newTracer makes an instance, which records nothing yet. It needs root.
func newTracer() (*tracer, error) {
	t := &tracer{filepath.Join("/sys/kernel/tracing/instances", fmt.Sprintf("sallyport-bench-%d", os.Getpid()))}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return nil, err
	}
	for _, s := range [][2]string{
		{"tracing_on", "0"}, {"trace_clock", "mono"}, {"buffer_size_kb", "32768"}, {"options/event-fork", "1"},
		{"events/syscalls/enable", "1"}, {"events/sched/sched_switch/enable", "1"}, {"events/sched/sched_waking/enable", "1"},
	} {
		if err := t.set(s[0], s[1]); err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

func (t *tracer) set(file, value string) error {
	return os.WriteFile(filepath.Join(t.dir, file), []byte(value), 0)
}

// record records the threads of processes while f runs, and returns the events.
func (t *tracer) record(processes []int, f func() error) ([]event, error) {
	var threads strings.Builder
	for _, p := range processes {
		found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p)) // none: it has ended
		for _, dir := range found {
			fmt.Fprintln(&threads, filepath.Base(dir))
		}
	}
	err := errors.Join(t.set("trace", ""), t.set("set_event_pid", threads.String()), t.set("tracing_on", "1"))
	if err == nil {
		err = f()
	}
	if err := errors.Join(err, t.set("tracing_on", "0")); err != nil {
		return nil, err
	}
	in, err := os.Open(filepath.Join(t.dir, "trace"))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return parseTrace(in)
}

// close removes the instance.
func (t *tracer) close() error {
	return errors.Join(t.set("tracing_on", "0"), os.Remove(t.dir))
}

// An event is one line of a trace.
type event struct {
	at     time.Duration
	thread int // that it happened in
	kind   eventKind
	call   string // of enter and exit: the name of the system call
	fd     int    // of enter: the first argument
	result int    // of exit
	other  int    // of waking: who is woken; of switched: who runs next
	blocks bool   // of switched: the thread waits for something
}

type eventKind int

const (
	enter eventKind = iota
	exit
	waking
	switched
)

// parseTrace reads the text of a trace, whose lines are in the order of time. It skips
// other kinds.
func parseTrace(r io.Reader) ([]event, error) {
	var events []event
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if strings.HasPrefix(in.Text(), "#") {
			continue
		}
		if e, ok := parseEvent(in.Text()); ok {
			events = append(events, e)
		}
	}
	return events, in.Err()
}

// parseEvent reads a line such as
//
//	name-123   [001] d..2. 77.000123: sched_waking: comm=x pid=5 prio=120 target_cpu=001
//	name-123   [001] ..... 77.000125: sys_write(fd: 3, buf: 1234, count: 5)
//	name-123   [001] ..... 77.000129: sys_write -> 0x5
func parseEvent(line string) (e event, ok bool) {
	head, rest, found := strings.Cut(line, ": ")
	if !found {
		return e, false
	}
	// The name of a thread may hold anything but what follows it.
	i := strings.LastIndex(head, " [")
	if i < 0 {
		return e, false
	}
	fields, name := strings.Fields(head[i:]), strings.TrimSpace(head[:i])
	seconds, fraction, _ := strings.Cut(fields[len(fields)-1], ".")
	s, err1 := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(fraction, 10, 64)
	thread, err3 := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if errors.Join(err1, err2, err3) != nil {
		return e, false
	}
	e.at, e.thread = time.Duration(s)*time.Second+time.Duration(us)*time.Microsecond, thread
	rest = strings.TrimSpace(rest)
	switch {
	case strings.HasPrefix(rest, "sched_waking: "):
		e.kind = waking
		e.other, ok = number(rest, " pid=")
	case strings.HasPrefix(rest, "sched_switch: "):
		e.kind = switched
		e.other, ok = number(rest, " next_pid=")
		_, state, _ := strings.Cut(rest, " prev_state=")
		e.blocks = !strings.HasPrefix(state, "R")
	case strings.HasPrefix(rest, "sys_"):
		if call, result, found := strings.Cut(rest, " -> "); found {
			n, err := strconv.ParseInt(strings.TrimSpace(result), 0, 64)
			if err != nil { // a negative one
				n = -1
			}
			e.kind, e.call, e.result = exit, strings.TrimPrefix(call, "sys_"), int(n)
			return e, true
		}
		call, arguments, found := strings.Cut(strings.TrimPrefix(rest, "sys_"), "(")
		e.kind, e.call, ok, e.fd = enter, call, found, -1
		if _, first, found := strings.Cut(arguments, ": "); found {
			first, _, _ = strings.Cut(strings.TrimRight(first, ")"), ",")
			if n, err := strconv.ParseInt(strings.TrimPrefix(first, "0x"), 16, 64); err == nil {
				e.fd = int(n)
			}
		}
	}
	return e, ok
}

// number returns the number after a key.
func number(text, key string) (int, bool) {
	_, after, found := strings.Cut(text, key)
	after, _, _ = strings.Cut(after, " ")
	n, err := strconv.Atoi(after)
	return n, found && err == nil
}

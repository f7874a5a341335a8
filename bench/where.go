package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// runWhere prints where the time of a warm call goes: for both engines, through the hub
// and in a process of its own.
func runWhere(o options, only string, stdout, stderr io.Writer) error {
	for _, engine := range []string{"gvisor", "wasm"} {
		for _, way := range []string{"through the hub", "a process of its own"} {
			title := engine + ", " + way
			if !strings.Contains(title, only) {
				continue
			}
			if err := runWhereOf(o, title, engine, way == "through the hub", stdout, stderr); err != nil {
				return fmt.Errorf("%s: %w", title, err)
			}
		}
	}
	return nil
}

func runWhereOf(o options, title, engine string, hub bool, stdout, stderr io.Writer) (err error) {
	b, who, err := prepare(o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	env := []string{"SALLYPORT_ENGINE=" + engine}
	if engine == "wasm" {
		env = append(env, "SALLYPORT_POLICY_MIN_ISOLATION=wasm")
	}
	if hub {
		env = append(env, shared)
		defer func() { err = errors.Join(err, b.endHubs()) }()
	}
	b.say(title)
	m := describeMachine()
	fmt.Fprintf(stdout, "%s: %s, %d CPUs, Linux %s, load %s, as %s\n\n", title, m.CPU, m.CPUs, m.Kernel, m.Load, who)
	return b.servingWith(env, b.configs.one, func(c *client) error {
		if _, err := repeat(0, 50, func() error { return onePlusOne(c) }); err != nil {
			return err
		}
		if err := b.timeline(c, stdout); err != nil {
			return err
		}
		if err := b.counts(c, stdout); err != nil {
			return err
		}
		return b.ladder(c, stdout)
	})
}

// A rung is a call that does one thing more than the one before.
type rung struct {
	what string
	call func() error
}

// ladder prints what each of several calls takes, and how much more than the one before.
func (b *bench) ladder(c *client, w io.Writer) error {
	echo, err := start(b.launch, b.self, "-pipe-echo")
	if err != nil {
		return err
	}
	defer func() { _ = echo.close() }() // it has nothing to lose
	says := func(code, want string) func() error {
		return func() error {
			text, err := c.python(code)
			if got := strings.TrimSpace(text); err == nil && got != want {
				err = fmt.Errorf("%q answered %q, want %q", code, got, want)
			}
			return err
		}
	}
	line := []byte(strings.Repeat("x", 63) + "\n")
	rungs := []rung{
		{"a line to a process and back", func() error {
			if _, err := echo.in.Write(line); err != nil {
				return err
			}
			_, err := echo.out.ReadSlice('\n')
			return err
		}},
		{"ping", func() error { _, err := request[struct{}](c, "ping", struct{}{}); return err }},
		{"run_python without code", func() error {
			_, err := request[toolResult](c, "tools/call", map[string]any{"name": "run_python", "arguments": map[string]string{"code": ""}})
			return err
		}},
		{"pass", says("pass", "Success (no output)")},
		{"1+1", says("1+1", "2")},
		{"print(1+1)", says("print(1+1)", "2")},
		{"print(1+1), after three lines", says("a = 1\nb = 1\nc = a + b\nprint(1+1)", "2")},
		{"print(1) and print(2): output before the end", says("print(1)\nprint(2)", "1\n2")},
	}
	all := make([]sample, len(rungs))
	for block := range max(b.n/50, 2) + 1 {
		for i, r := range rungs {
			s, err := repeat(0, 50, r.call)
			if err != nil {
				return fmt.Errorf("%s: %w", r.what, err)
			}
			if block > 0 { // the first warms up
				all[i] = append(all[i], s...)
			}
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "call\tp50 µs\tp95 µs\tmore than the row before")
	for i, more := range differences(all) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%+d\n", rungs[i].what, all[i].p50().Microseconds(), all[i].p95().Microseconds(), more.Microseconds())
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// differences returns how much more each sample's median is than the one before.
func differences(all []sample) []time.Duration {
	more := make([]time.Duration, len(all))
	for i := 1; i < len(all); i++ {
		more[i] = all[i].p50() - all[i-1].p50()
	}
	return more
}

// roles returns the processes that take part in a call, by what they are.
func (b *bench) roles(c *client) (map[string][]int, error) {
	exe, err := filepath.EvalSymlinks(b.sallyport)
	if err != nil {
		return nil, err
	}
	ours, err := descendants(c.cmd.Process.Pid, exe)
	if err != nil {
		return nil, err
	}
	roles := map[string][]int{"client": {os.Getpid()}}
	for pid := range ours {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue // it has ended
		}
		role := roleOf(strings.Split(string(raw), "\x00"), pid == c.cmd.Process.Pid)
		roles[role] = append(roles[role], pid)
	}
	if roles["hub"] == nil {
		roles["sallyport"] = roles["frontend"]
		delete(roles, "frontend")
	}
	for _, pids := range roles {
		slices.Sort(pids)
	}
	return roles, nil
}

// roleOf says what a process of a running Sallyport is, by its command line.
func roleOf(command []string, first bool) string {
	switch name := filepath.Base(command[0]); {
	case first:
		return "frontend"
	case name == "runsc-sandbox":
		return "sentry"
	case name == "runsc-gofer", name == "sallyport-supervisor", name == "sallyport-wasm-host":
		return strings.TrimPrefix(strings.TrimPrefix(name, "runsc-"), "sallyport-")
	case slices.Contains(command, "hub"):
		return "hub"
	}
	return "guest" // the processes in which gVisor runs the sandbox's own
}

// A usage is what the threads of processes have used.
type usage struct {
	cpu                    time.Duration
	voluntary, involuntary int64
	faults                 int64
}

func (u usage) minus(v usage) usage {
	return usage{u.cpu - v.cpu, u.voluntary - v.voluntary, u.involuntary - v.involuntary, u.faults - v.faults}
}

// usageOf sums what processes have used.
func usageOf(pids []int) (u usage) {
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // none: it has ended
		for _, task := range tasks {
			u.add(task)
		}
	}
	return u
}

// add adds what a thread has used. It adds nothing of one that has ended.
func (u *usage) add(task string) {
	if raw, err := os.ReadFile(task + "/schedstat"); err == nil {
		if fields := strings.Fields(string(raw)); len(fields) > 0 {
			ns, _ := strconv.ParseInt(fields[0], 10, 64)
			u.cpu += time.Duration(ns)
		}
	}
	if raw, err := os.ReadFile(task + "/stat"); err == nil {
		if fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:])); len(fields) > 7 {
			n, _ := strconv.ParseInt(fields[7], 10, 64)
			u.faults += n
		}
	}
	raw, _ := os.ReadFile(task + "/status")
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		switch key {
		case "voluntary_ctxt_switches":
			u.voluntary += n
		case "nonvoluntary_ctxt_switches":
			u.involuntary += n
		}
	}
}

// counts prints what each kind of process uses for a call.
func (b *bench) counts(c *client, w io.Writer) error {
	roles, err := b.roles(c)
	if err != nil {
		return err
	}
	before := map[string]usage{}
	for role, pids := range roles {
		before[role] = usageOf(pids)
	}
	n := max(b.n, 100)
	s, err := repeat(0, n, func() error { return onePlusOne(c) })
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "for a call, of %d (p50 %d µs)\tprocessor µs\twaits\tpreempted\tminor faults\n", n, s.p50().Microseconds())
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		u := usageOf(roles[role]).minus(before[role])
		per := func(x int64) float64 { return float64(x) / float64(n) }
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.2f\n", role, per(u.cpu.Microseconds()), per(u.voluntary), per(u.involuntary), per(u.faults))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

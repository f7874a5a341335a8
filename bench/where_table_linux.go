package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// tracedCalls is how many calls are followed.
const tracedCalls = 400

// little is the time below which steps of a process are summed.
const little = 2 * time.Microsecond

// timeline prints the path of a call through the processes, where the kernel lets this
// user trace it.
func (b *bench) timeline(c *client, w io.Writer) (err error) {
	t, err := newTracer()
	if err != nil {
		fmt.Fprintf(w, "No timeline: %v. It needs root, and the kernel's tracing below /sys/kernel/tracing.\n\n", err)
		return nil
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	defer func() { err = errors.Join(err, t.close()) }()
	roles, err := b.roles(c)
	if err != nil {
		return err
	}
	p, err := placeOf(roles)
	if err != nil {
		return err
	}
	in, err1 := pipeOf(c.in)
	out, err2 := pipeOf(c.pipe)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var s sample
	events, err := t.record(slices.Concat(slices.Collect(maps.Values(roles))...), func() error {
		s, err = repeat(0, tracedCalls, func() error {
			select {
			case <-interrupted:
				return errors.New("interrupted")
			default:
				return onePlusOne(c)
			}
		})
		return err
	})
	if err != nil {
		return err
	}
	p.grow(roles)
	calls := p.cut(events, "client", in, out)
	if len(calls) < tracedCalls/2 {
		return fmt.Errorf("the trace shows %d of %d calls: its buffer is too small, or the processes have other numbers there", len(calls), tracedCalls)
	}
	if err := writeTimeline(w, p, calls, s); err != nil {
		return err
	}
	return p.writeSystemCalls(w, events, len(calls))
}

// placeOf finds the threads and pipes of processes.
func placeOf(roles map[string][]int) (*place, error) {
	p := &place{role: map[int]string{}, pipe: map[int]map[int]string{}}
	p.grow(roles)
	if len(p.role) == 0 {
		return nil, errors.New("no processes")
	}
	return p, nil
}

// grow adds the threads that processes have now.
func (p *place) grow(roles map[string][]int) {
	for role, pids := range roles {
		for _, pid := range pids {
			pipes := map[int]string{}
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // none: it has ended
			for _, name := range fds {
				to, _ := os.Readlink(name)
				if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && strings.HasPrefix(to, "pipe:") {
					pipes[fd] = to
				}
			}
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			for _, task := range tasks {
				if tid, err := strconv.Atoi(filepath.Base(task)); err == nil {
					p.role[tid], p.pipe[tid] = role, pipes
				}
			}
		}
	}
}

// pipeOf returns which pipe a file is.
func pipeOf(v any) (name string, err error) {
	f, ok := v.(syscall.Conn)
	if !ok {
		return "", fmt.Errorf("%T is not a file", v)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	controlErr := conn.Control(func(fd uintptr) { name, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) })
	return name, errors.Join(controlErr, err)
}

// length is how long a call took.
func (c tracked) length() time.Duration { return c[len(c)-1].at - c[0].at }

// around returns the fifth of the calls that is nearest to the median.
func around(calls []tracked) []tracked {
	calls = slices.Clone(calls)
	slices.SortFunc(calls, func(a, b tracked) int { return int(a.length() - b.length()) })
	return calls[len(calls)*2/5 : max(len(calls)*3/5, len(calls)*2/5+1)]
}

// A line is a step of all calls.
type line struct {
	step
	n float64 // how often it occurs in a call
}

// lines sums the steps of calls, in the order of their first occurrence, as what they
// are for one call. What takes little is one line for each process.
func lines(p *place, calls []tracked) (all []line) {
	type key struct {
		phase     int
		who, what string
	}
	sums := map[key]*line{}
	var order []key
	for _, c := range calls {
		for _, s := range p.walk(c) {
			k := key{s.phase, s.who, s.what}
			if sums[k] == nil {
				sums[k] = &line{step: step{s.phase, s.who, s.what, 0}}
				order = append(order, k)
			}
			sums[k].took += s.took
			sums[k].n++
		}
	}
	n := time.Duration(len(calls))
	var rest []line
	for _, k := range order {
		l := *sums[k]
		l.took, l.n = l.took/n, l.n/float64(n)
		if l.took >= little {
			all = append(all, l)
			continue
		}
		i := slices.IndexFunc(rest, func(r line) bool { return r.phase == k.phase && r.who == k.who })
		if i < 0 {
			i, rest = len(rest), append(rest, line{step: step{k.phase, k.who, "other", 0}})
		}
		rest[i].took += l.took
		rest[i].n += l.n
	}
	all = append(all, rest...)
	slices.SortStableFunc(all, func(a, b line) int { return a.phase - b.phase })
	return all
}

func writeTimeline(w io.Writer, p *place, calls []tracked, whole sample) error {
	calls = around(calls)
	var total, sum time.Duration
	for _, c := range calls {
		total += c.length() / time.Duration(len(calls))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "step\twho\twhat\ttimes\tµs\tshare")
	for _, l := range lines(p, calls) {
		sum += l.took
		fmt.Fprintf(t, "%d\t%s\t%s\t%.1f\t%.1f\t%.0f %%\n", l.phase+1, l.who, l.what, l.n, micro(l.took), 100*float64(l.took)/float64(total))
	}
	fmt.Fprintf(t, "\t\tsum\t\t%.1f\t\n\t\tfrom the write to the read, traced\t\t%.1f\t\n", micro(sum), micro(total))
	fmt.Fprintf(t, "\t\tthe same with the client's own encoding and decoding (p50)\t\t%.1f\t\n\n", micro(whole.p50()))
	return t.Flush()
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// writeSystemCalls prints how often each process makes which system call for a call.
func (p *place) writeSystemCalls(w io.Writer, events []event, calls int) error {
	counts := map[string]map[string]int{}
	for _, e := range events {
		if e.kind != enter || p.role[e.thread] == "" {
			continue
		}
		of := p.role[e.thread]
		if counts[of] == nil {
			counts[of] = map[string]int{}
		}
		counts[of][e.call]++
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "system calls for a call")
	for _, who := range slices.Sorted(maps.Keys(counts)) {
		names := slices.Collect(maps.Keys(counts[who]))
		slices.SortFunc(names, func(a, b string) int {
			return 1000*(counts[who][b]-counts[who][a]) + strings.Compare(a, b)
		})
		var all []string
		for _, name := range names {
			if n := float64(counts[who][name]) / float64(calls); n >= 0.05 {
				all = append(all, fmt.Sprintf("%s %.1f", name, n))
			}
		}
		fmt.Fprintf(t, "%s\t%s\n", who, strings.Join(all, ", "))
	}
	fmt.Fprintln(t)
	return t.Flush()
}

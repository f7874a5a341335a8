package main

import (
	"slices"
	"strings"
	"time"
)

// A place says of threads and descriptors what they are.
type place struct {
	role map[int]string         // by thread
	pipe map[int]map[int]string // by thread: descriptor -> what it leads to
}

// A step is a piece of the path from the client's write to its read.
type step struct {
	phase int // how many processes the request and its answer have passed before
	who   string
	what  string
	took  time.Duration
}

// A tracked call is a call's events, which begin with the client's write and end with
// the end of its read.
type tracked []event

// reads and writes are the system calls that move messages.
func reads(call string) bool  { return strings.Contains(call, "read") && call != "readlinkat" }
func writes(call string) bool { return strings.Contains(call, "write") }

// cut returns the events of each call of a client that has nothing else to write to
// that pipe and to read from the other.
func (p *place) cut(events []event, client, to, from string) (calls []tracked) {
	begin := -1
	open := map[int]int{} // the descriptor of the call that a thread is in
	for i, e := range events {
		if p.role[e.thread] != client {
			continue
		}
		switch {
		case e.kind == enter:
			open[e.thread] = e.fd
			if writes(e.call) && p.pipe[e.thread][e.fd] == to {
				begin = i
			}
		case e.kind == exit && begin >= 0 && reads(e.call) && e.result > 0 && p.pipe[e.thread][open[e.thread]] == from:
			calls = append(calls, tracked(events[begin:i+1]))
			begin = -1
		}
	}
	return calls
}

// walk follows a call back from the client's read to its write, and returns the pieces
// in the order of time. What a thread does is explained by its wake-up, and that by
// what the thread that woke it does. A message that was read is explained by its write.
func (p *place) walk(c tracked) []step {
	var steps []step
	i := len(c) - 1
	for phase := 0; i > 0; phase-- {
		arrival := p.arrival(c, i) // the end of the read that brought what this process works on
		begin := 0
		if arrival >= 0 {
			begin = arrival
		}
		if begin < i {
			steps = p.within(c, begin, i, phase, steps)
		}
		if arrival < 0 {
			break
		}
		sent := p.sent(c, arrival)
		if sent < 0 {
			break
		}
		steps = p.passage(c, sent, arrival, phase, steps)
		i = sent
	}
	slices.Reverse(steps)
	for j := len(steps) - 1; j >= 0; j-- { // the first last, for all are compared with it
		steps[j].phase -= steps[0].phase
	}
	return steps
}

// arrival returns the latest end of a read, at or before i, of a message by the process
// of i; -1: none.
func (p *place) arrival(c tracked, i int) int {
	who := p.role[c[i].thread]
	for j := i; j > 0; j-- {
		if e := c[j]; e.kind == exit && e.result > 0 && reads(e.call) && p.role[e.thread] == who && p.sent(c, j) >= 0 {
			return j
		}
	}
	return -1
}

// sent returns the beginning of the write, by another process, that a read's end
// answers; -1: none.
func (p *place) sent(c tracked, read int) int {
	fd, ok := -1, false
	for j := read - 1; j >= 0; j-- {
		if c[j].thread == c[read].thread && c[j].kind == enter {
			fd, ok = c[j].fd, true
			break
		}
	}
	pipe := p.pipe[c[read].thread][fd]
	if !ok || pipe == "" {
		return -1
	}
	for j := read - 1; j >= 0; j-- {
		if e := c[j]; e.kind == enter && writes(e.call) && p.pipe[e.thread][e.fd] == pipe && p.role[e.thread] != p.role[c[read].thread] {
			return j
		}
	}
	return -1
}

// passage divides the time from the beginning of a write to the end of the read, in
// backward order.
func (p *place) passage(c tracked, sent, read, phase int, steps []step) []step {
	writer, reader := p.role[c[sent].thread], p.role[c[read].thread]
	woken, runs := -1, -1
	for j := sent; j < read && runs < 0; j++ {
		switch e := c[j]; {
		case woken < 0 && e.kind == waking && e.thread == c[sent].thread && p.role[e.other] == reader:
			woken = j
		case woken >= 0 && e.kind == switched && e.other == c[woken].other:
			runs = j
		}
	}
	if runs < 0 {
		return append(steps, step{phase, reader, "message from " + writer + ", no wake-up", c[read].at - c[sent].at})
	}
	return append(steps,
		step{phase, reader, "runs, reads the message", c[read].at - c[runs].at},
		step{phase, reader, "is woken by " + writer + ", until it runs", c[runs].at - c[woken].at},
		step{phase, writer, "in the write, until it wakes " + reader, c[woken].at - c[sent].at})
}

// within explains the time between two events of one process, in backward order.
func (p *place) within(c tracked, begin, end, phase int, steps []step) []step {
	thread := c[end].thread
	for end > begin {
		runs, woken := -1, -1 // the last time that it was woken
		for j := end; j > begin; j-- {
			e := c[j]
			if runs < 0 && e.kind == switched && e.other == thread && !p.preempted(c, j, thread) {
				runs = j
			}
			if runs >= 0 && e.kind == waking && e.other == thread {
				woken = j
				break
			}
		}
		if woken < 0 {
			return p.running(c, begin, end, thread, phase, steps)
		}
		steps = p.running(c, runs, end, thread, phase, steps)
		waker := c[woken].thread
		if p.role[waker] == "" { // an interrupt, such as a timer's, in whichever thread
			return append(steps, step{phase, p.role[thread], "sleeps until a timer", c[runs].at - c[begin].at})
		}
		what := "a thread wakes another, until it runs"
		if p.role[waker] != p.role[thread] {
			what = "is woken by " + p.role[waker] + ", until it runs"
		}
		steps = append(steps, step{phase, p.role[thread], what, c[runs].at - c[woken].at})
		thread, end = waker, woken
	}
	return steps
}

// preempted reports whether a thread that runs again at i had not waited for anything.
func (p *place) preempted(c tracked, i, thread int) bool {
	for j := i - 1; j >= 0; j-- {
		if c[j].kind == switched && c[j].thread == thread {
			return !c[j].blocks
		}
	}
	return false
}

// running divides the time of a thread among its system calls and its own work.
func (p *place) running(c tracked, begin, end, thread, phase int, steps []step) []step {
	who, to := p.role[thread], c[end].at
	call := ""
	for j := end; j > begin; j-- {
		e := c[j]
		if e.thread != thread {
			continue
		}
		switch e.kind {
		case exit:
			steps = append(steps, step{phase, who, "computes", to - e.at})
			to, call = e.at, e.call
		case enter:
			steps = append(steps, step{phase, who, "system call " + e.call, to - e.at})
			to, call = e.at, ""
		}
	}
	what := "computes"
	if call != "" {
		what = "system call " + call
	}
	return append(steps, step{phase, who, what, to - c[begin].at})
}

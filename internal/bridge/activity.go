package bridge

import (
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/invisible"
)

// steps are what an execution waits for. It is guarded by Execution.mu.
type steps struct {
	starting     []string // servers
	server, tool string   // of the latest call
	begun, ended int      // calls
	done         string   // what the server says of that call, fit to be shown
}

// begin notes that a server starts (no tool), or that a tool is called.
func (x *Execution) begin(server, tool string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if tool == "" {
		x.steps.starting = append(x.steps.starting, server)
		return
	}
	x.steps.server, x.steps.tool, x.steps.done = server, tool, ""
	x.steps.begun++
}

// end notes that what begin noted is over.
func (x *Execution) end(server, tool string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if tool != "" {
		x.steps.ended++
		x.steps.done = "" // it may have been about this call
		return
	}
	if i := slices.Index(x.steps.starting, server); i >= 0 {
		x.steps.starting = slices.Delete(x.steps.starting, i, i+1)
	}
}

// progress notes what a server says about a call of a tool, which is the latest
// from then on.
func (x *Execution) progress(server, tool, done string) {
	if tool == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.steps.server, x.steps.tool, x.steps.done = server, tool, done
}

// Activity says what the execution waits for, such as "starting server github"
// or "calling jira.search, 12 of 40 done", or "calling jira.search: 3 of 10,
// indexing", or nothing where it waits for no
// server and for no packages. Code chooses the names, so it is one short line whatever they are.
func (x *Execution) Activity() string {
	if what := x.additions.activity(); what != "" {
		return what
	}
	x.mu.Lock()
	s := x.steps
	starting, server := len(s.starting), ""
	if starting > 0 {
		server = s.starting[0]
	}
	x.mu.Unlock()
	short := func(name string) string { return invisible.Line(clip(name, 100)) }
	call := short(s.server + "." + s.tool)
	switch open := s.begun - s.ended; {
	case starting > 1:
		return fmt.Sprintf("starting server %s and %d more", short(server), starting-1)
	case starting == 1:
		return "starting server " + short(server)
	case open > 1:
		return fmt.Sprintf("calling %s, %d of %d done", call, s.ended, s.begun)
	case open == 1 && s.done != "":
		return fmt.Sprintf("calling %s: %s", call, s.done)
	case open == 1 && s.begun > 1:
		return fmt.Sprintf("calling %s, call %d", call, s.begun)
	case open == 1:
		return "calling " + call
	}
	return ""
}

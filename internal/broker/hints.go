package broker

import (
	"fmt"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/session"
)

// HintPrefix begins the notes that say what to do about a common mistake. The
// guest has hints of its own, for exceptions (hints.py).
const HintPrefix = "Hint: "

// hintFacts are what hints depend on. All but the exception's type are the
// host's own.
type hintFacts struct {
	out  *session.Outcome
	asks time.Duration // the limit that the request had
	most time.Duration // the limit that it may have
	// anew reports whether the client connected anew, and so lost its own session.
	anew func() bool
}

// hints are the host's hints. Each returns an empty string if it does not apply.
var hints = []func(*hintFacts) string{moreTime, lessAtOnce, wholeRun, lostVariable, otherConnection}

// hintsFor returns the notes for an execution.
func hintsFor(f *hintFacts) []string {
	var notes []string
	for _, hint := range hints {
		if text := hint(f); text != "" {
			notes = append(notes, HintPrefix+text)
		}
	}
	return notes
}

// moreTime is for code that could have asked for more time.
func moreTime(f *hintFacts) string {
	if f.out.End != session.TimedOut || f.out.Whole || f.out.Fetching || f.asks >= f.most {
		return ""
	}
	return fmt.Sprintf("pass timeout=%d for the most time that is allowed (setting timeouts.max)", int(f.most.Seconds()))
}

// lessAtOnce is for code that had the most time that is allowed.
func lessAtOnce(f *hintFacts) string {
	if f.out.End != session.TimedOut || f.out.Whole || f.out.Fetching || f.asks < f.most {
		return ""
	}
	return fmt.Sprintf("do the work in several calls: variables stay between them. %s is the most for one (setting timeouts.max)", seconds(f.most))
}

// wholeRun is for code that waited too long for tools.
func wholeRun(f *hintFacts) string {
	if f.out.End != session.TimedOut || !f.out.Whole {
		return ""
	}
	return fmt.Sprintf("call fewer tools at once, or with asyncio.gather: %s is the most for one call in all (setting timeouts.wholeRun)", seconds(f.out.Limit))
}

// otherConnection is for code of a client that connects for each call. Only its name
// and the code's exception are looked at, not what others' code defined.
func otherConnection(f *hintFacts) string {
	e := f.out.Error
	if f.out.End != session.Raised || e == nil || e.Type != "NameError" || strings.Contains(e.Message, "'mcp_") || f.out.LostBefore != "" || f.anew == nil || !f.anew() {
		return ""
	}
	if strings.Contains(f.out.Stderr.Head+f.out.Stderr.Tail, "\n"+HintPrefix) {
		return "" // the guest knows what the name means
	}
	return `each connection has variables of its own, and this one is new. Pass "session": "NAME" with each call to keep them`
}

// lostVariable is for code that may have used a variable of a sandbox that is
// gone. The result that reported the loss is an earlier one.
func lostVariable(f *hintFacts) string {
	e := f.out.Error
	if f.out.End != session.Raised || e == nil || e.Type != "NameError" || strings.Contains(e.Message, "'mcp_") || f.out.Lost != "" || f.out.LostBefore == "" {
		return ""
	}
	return "variables of earlier calls are gone (" + f.out.LostBefore + "): define what this code needs again"
}

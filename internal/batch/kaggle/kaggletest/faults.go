package kaggletest

import (
	"net/http"
	"time"
)

// The kinds of faults.
const (
	DropBefore = "drop-before" // the connection ends, and nothing was done
	DropAfter  = "drop-after"  // it was done, and the answer is lost
	Status     = "status"      // an answer other than 200, and nothing was done
	Truncate   = "truncate"    // half of the answer, and the connection ends
	Short      = "short"       // half of the answer, as if it were all
	Slow       = "slow"        // the answer comes late
	Redirect   = "redirect"    // to another address
)

// A Fault happens to the next requests of a kind.
type Fault struct {
	Call   string        `json:"call"`             // of the journal; empty: any
	Kernel string        `json:"kernel,omitempty"` // of this slug alone
	Kind   string        `json:"kind"`
	Times  int           `json:"times"` // 0 is once; negative: always
	Skip   int           `json:"skip"`  // first lets this many pass
	Every  int           `json:"every"` // then applies to every Nth only
	Status int           `json:"status,omitempty"`
	Retry  string        `json:"retryAfter,omitempty"`
	Delay  time.Duration `json:"delay,omitempty"`
	To     string        `json:"to,omitempty"`
	// Legacy selects the other form of a 429's body.
	Legacy bool `json:"legacy,omitempty"`
}

// Inject adds a fault.
func (s *Server) Inject(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal removes all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// fault returns the fault that applies to a request, if any.
func (s *Server) fault(call, kernel string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.Times == 0 || f.Call != "" && f.Call != call || f.Kernel != "" && f.Kernel != kernel {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Every > 1 {
			f.Skip = f.Every - 1
		}
		if f.Times > 0 {
			f.Times--
		}
		taken := *f
		return &taken
	}
	return nil
}

// before applies the faults that precede any effect, and reports whether the
// request has been answered.
func (s *Server) before(w http.ResponseWriter, r *http.Request, entry *Entry, f *Fault) bool {
	if f == nil {
		return false
	}
	switch f.Kind {
	case DropBefore:
		entry.Fault = DropBefore
		s.record(*entry)
		panic(http.ErrAbortHandler)
	case Slow:
		entry.Fault = Slow
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
		}
	case Redirect:
		entry.Fault, entry.Status = Redirect, http.StatusTemporaryRedirect
		s.record(*entry)
		http.Redirect(w, r, f.To, http.StatusTemporaryRedirect)
		return true
	case Status:
		entry.Fault, entry.Status = Status, f.Status
		s.record(*entry)
		if f.Retry != "" {
			w.Header().Set("Retry-After", f.Retry)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		switch {
		case f.Status != http.StatusTooManyRequests:
			_, _ = w.Write([]byte(`<html><title>Error</title></html>`))
		case f.Legacy:
			_, _ = w.Write([]byte(`{"code":429,"message":"TooManyRequests"}`))
		default:
			_, _ = w.Write([]byte(`{"error":{"code":429,"message":"Too many requests","status":"RESOURCE_EXHAUSTED"}}`))
		}
		return true
	}
	return false
}

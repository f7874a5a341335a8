package runpodtest

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// A Fault is something that goes wrong with a request. The first that applies
// counts.
type Fault struct {
	// Op is the operation: "run", "status", "job-take", "job-done", "ping",
	// "rest", … Empty: all of the job API.
	Op string
	// Times is how often it happens; 0 is without end.
	Times int
	// Rate is its probability; 0 is always.
	Rate float64
	// If narrows it further.
	If func(*http.Request) bool

	// What happens, one of them, Slow with any.
	Before  bool          // the connection breaks before anything was done
	After   bool          // the connection breaks after it was done
	Cut     bool          // it breaks in the middle of the answer
	Garbage bool          // the answer is an HTML page
	Status  int           // the answer is this status, and nothing was done
	Retry   time.Duration // of a Status: the Retry-After header
	Slow    time.Duration // the answer takes this long
}

type armed struct {
	Fault
	left int
}

// Inject orders a fault. The function returned takes it back.
func (s *Server) Inject(f Fault) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &armed{f, f.Times}
	s.faults = append(s.faults, a)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, have := range s.faults {
			if have == a {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
				return
			}
		}
	}
}

// fault is what goes wrong with this request; the zero Fault is nothing.
func (s *Server) fault(op string, r *http.Request) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.faults {
		if a.Op != op && (a.Op != "" || op == "rest") || a.If != nil && !a.If(r) {
			continue
		}
		if a.Rate > 0 && s.random.Float64() >= a.Rate {
			continue
		}
		if a.Times > 0 {
			if a.left--; a.left == 0 {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			}
		}
		s.faulted[op]++
		return a.Fault
	}
	return Fault{}
}

// Faulted is how many faults have happened to an operation.
func (s *Server) Faulted(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faulted[op]
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }

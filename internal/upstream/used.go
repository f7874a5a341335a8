package upstream

import (
	"time"

	"github.com/sallyport/sallyport/internal/upstream/child"
)

// Used is what the processes of a server on this machine used in a period.
// Negative means unknown.
type Used struct {
	Server      string
	Began       time.Time
	Wall, CPU   time.Duration
	ByteSeconds float64
	// Open means that the period continues: others with the same Began follow.
	Open bool
}

const (
	// usedEvery is how often a server's processes are sampled, and usedWhole how
	// long a period is.
	usedEvery = time.Second
	usedWhole = 5 * time.Minute
)

// meter reports what a program uses until it has ended.
func (p *Pool) meter(server string, proc *child.Process) {
	tick := time.NewTicker(usedEvery / 10) // at first: it may not live for long
	defer tick.Stop()
	u := Used{Server: server, Began: time.Now()}
	at := u.Began
	var base, last time.Duration
	var held int64
	blind := true // nothing was known while it ran
	for over := false; !over; {
		select {
		case <-tick.C:
			tick.Reset(usedEvery)
		case <-proc.Exited():
			over = true
		}
		cpu, bytes, ok := proc.Used()
		if !ok {
			continue
		}
		now := time.Now()
		if bytes >= 0 {
			held, blind = bytes, false
		}
		// The last sample of the program alone may be less than it and its children had
		// together before.
		last = max(last, cpu)
		u.Wall, u.CPU = now.Sub(u.Began), last-base
		u.ByteSeconds += float64(held) * now.Sub(at).Seconds()
		at = now
		u.Open = !over && u.Wall < usedWhole
		told := u
		if blind {
			told.ByteSeconds = -1
		}
		p.opts.Used(told)
		if !u.Open {
			base, u = last, Used{Server: server, Began: now}
		}
	}
}

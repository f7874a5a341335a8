package upstream

import (
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/upstream/child"
)

const (
	// usedEvery is how often a server's processes are sampled, and usedWhole how
	// long a period is.
	usedEvery = time.Second
	usedWhole = 5 * time.Minute
)

// meter publishes what a program uses until it has ended: once, however many
// clients share it, under the name that the first of them has for it.
func (p *Pool) meter(server string, proc *child.Process) {
	tick := time.NewTicker(usedEvery / 10) // at first: it may not live for long
	defer tick.Stop()
	u := usage.Usage{Began: time.Now(), PeakBytes: -1}
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
		p.opts.Journal.Publish(&journal.Used{Origin: journal.Origin{Time: now}, Kind: journal.ByServer, Name: server, Usage: told})
		if !u.Open {
			base, u = last, usage.Usage{Began: now, PeakBytes: -1}
		}
	}
}

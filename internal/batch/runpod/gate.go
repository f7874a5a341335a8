package runpod

import (
	"context"
	"sync"
	"time"
)

// A gate keeps requests of one operation within RunPod's rates, for all runs
// of this program: half of what an endpoint takes, as others may use it, too.
type gate struct {
	every time.Duration
	slots chan struct{}

	mu   sync.Mutex
	next time.Time
}

func newGates() map[string]*gate {
	gates := map[string]*gate{}
	for op, g := range map[string]struct {
		per10s, concurrent int
	}{
		"run": {1000, 200}, "runsync": {2000, 400}, "status": {2000, 400}, "stream": {2000, 400},
		"cancel": {100, 20}, "requests": {10, 2}, "health": {200, 20}, // health: not published
	} {
		gates[op] = &gate{
			every: 20 * time.Second / time.Duration(g.per10s), slots: make(chan struct{}, g.concurrent/2),
		}
	}
	return gates
}

// enter waits for a turn. The caller calls leave when the request has ended.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		g.mu.Lock()
		now := time.Now()
		wait := g.next.Sub(now)
		if wait <= 0 {
			g.next = now.Add(g.every)
		}
		g.mu.Unlock()
		if wait <= 0 {
			return func() { <-g.slots }, nil
		}
		if err := sleep(ctx, wait); err != nil {
			<-g.slots
			return nil, err
		}
	}
}

// hold blocks all requests for a while, as the service demanded.
func (g *gate) hold(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(d); until.After(g.next) {
		g.next = until
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package budget

import (
	"context"
	"fmt"
	"sync"
)

// Limits of a Host, in bytes. What is charged is less than what is resident:
// decoding makes copies, and the collector runs late. With these limits one
// sandbox makes the host's resident memory grow by less than 256 MB.
const (
	// programLimit bounds what all sandboxes hold beyond their floors.
	programLimit = 512 << 20
	// sandboxFloor is what a sandbox has even where others use up everything.
	sandboxFloor = 24 << 20
	// requestsLimit is room for the largest frame of a guest, charged twice:
	// it is copied on its way to a server.
	requestsLimit = 66 << 20
	repliesLimit  = 64 << 20
	outputLimit   = 16 << 20
	// linesLimit bounds the messages of all servers that are being read. What
	// finds no room there is read into a file.
	linesLimit = 32 << 20
	// resultsLimit bounds the results that clients have not fetched yet. What finds
	// no room there stays on disk.
	resultsLimit = 64 << 20

	spoolLimit        = 4 << 30 // files of messages, all together
	sandboxSpoolLimit = 1 << 30
)

// Host is the budgets of a whole program.
type Host struct {
	sandboxes *Budget
	// Lines are messages of servers that are being read.
	Lines *Budget
	// Results are those of calls whose clients will fetch them later.
	Results *Budget
	// Own is for calls that no sandbox made.
	Own *Sandbox
	// Spool is the disk that messages take which do not fit in memory.
	Spool *Budget

	scale int64
}

// NewHost returns the budgets of a program, with limits that are scale times
// the usual ones.
func NewHost(scale int64) *Host {
	root := New((programLimit + linesLimit + resultsLimit) * scale)
	h := &Host{
		sandboxes: root.Sub(programLimit*scale, 0),
		Lines:     root.Sub(linesLimit*scale, 0),
		Results:   root.Sub(resultsLimit*scale, 0),
		Spool:     New(spoolLimit * scale),
		scale:     scale,
	}
	h.Own = h.NewSandbox()
	return h
}

// Program is the budgets of this program.
var Program = sync.OnceValue(func() *Host {
	h := NewHost(1)
	h.sandboxes.tree.heap.limits = unlimited()
	return h
})

// Sandbox is the budgets of one sandbox.
type Sandbox struct {
	all                       *Budget
	Requests, Replies, Output *Budget
	Spool                     *Budget
	exclusive                 chan struct{} // holds the token of the lease that has it
}

// NewSandbox returns the budgets of one more sandbox.
func (h *Host) NewSandbox() *Sandbox {
	all := h.sandboxes.Sub((requestsLimit+repliesLimit+outputLimit)*h.scale, sandboxFloor*h.scale)
	return &Sandbox{
		all:      all,
		Requests: all.Sub(requestsLimit*h.scale, 0),
		Replies:  all.Sub(repliesLimit*h.scale, 0),
		Output:   all.Sub(outputLimit*h.scale, 0),
		Spool:    h.Spool.Sub(sandboxSpoolLimit*h.scale, 0),

		exclusive: make(chan struct{}, 1),
	}
}

// Close fails whoever waits for one of the budgets.
func (s *Sandbox) Close() {
	for _, b := range []*Budget{s.Requests, s.Replies, s.Output, s.Spool} {
		b.Close()
	}
}

// Used is what the sandbox makes the host hold.
func (s *Sandbox) Used() int64 { return s.all.Used() }

// Lease is what one call holds of its sandbox's Replies and Spool, from the
// arrival of its result until the guest has read it. Its methods are safe for
// concurrent use. A nil Lease has no limits.
type Lease struct {
	memory, disk *Budget
	exclusive    chan struct{}

	mu           sync.Mutex
	inUse, files int64
	alone        bool
	ended        bool
}

// Lease returns a lease that holds nothing.
func (s *Sandbox) Lease() *Lease {
	return &Lease{memory: s.Replies, disk: s.Spool, exclusive: s.exclusive}
}

// Exclusive waits until no other lease of the sandbox is exclusive. Only one that
// is may wait in Acquire for more than it holds already: two that did could wait
// for each other. share ends it; where the lease was exclusive before, it stays
// so.
func (l *Lease) Exclusive(ctx context.Context) (share func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	l.mu.Lock()
	alone := l.alone
	l.mu.Unlock()
	if alone {
		return func() {}, nil
	}
	select {
	case l.exclusive <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.setAlone(true)
	return func() {
		l.setAlone(false)
		<-l.exclusive
	}, nil
}

func (l *Lease) setAlone(alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alone = alone
}

// Acquire is Budget.Acquire. The error is ErrTooLarge if n would not fit
// together with what the lease already holds.
func (l *Lease) Acquire(ctx context.Context, n int64) error {
	if l == nil {
		return nil
	}
	if held := l.Held(); held > 0 && held+n > l.memory.most() {
		return fmt.Errorf("%w: %s, where %s are allowed", ErrTooLarge, size(held+n), size(l.memory.most()))
	}
	if err := l.memory.Acquire(ctx, n); err != nil {
		return err
	}
	if !l.keep(&l.inUse, n) {
		l.memory.Release(n)
		return ErrClosed
	}
	return nil
}

// TryAcquire is Budget.TryAcquire.
func (l *Lease) TryAcquire(n int64) bool {
	if l == nil {
		return true
	}
	if !l.memory.TryAcquire(n) {
		return false
	}
	if !l.keep(&l.inUse, n) {
		l.memory.Release(n)
		return false
	}
	return true
}

// TryDisk charges n bytes of disk. They stay charged until Release.
func (l *Lease) TryDisk(n int64) bool {
	if l == nil {
		return true
	}
	if !l.disk.TryAcquire(n) {
		return false
	}
	if !l.keep(&l.files, n) {
		l.disk.Release(n)
		return false
	}
	return true
}

func (l *Lease) keep(held *int64, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || n <= 0 {
		return !l.ended
	}
	*held += n
	return true
}

// Held is how many bytes of memory are charged.
func (l *Lease) Held() int64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// Reduce releases all but n bytes of memory.
func (l *Lease) Reduce(n int64) { l.reduce(n, (*Budget).Release) }

// Return is Reduce for bytes that were reserved and never allocated.
// [Allocated] tells how many were.
func (l *Lease) Return(n int64) { l.reduce(n, (*Budget).Return) }

func (l *Lease) reduce(n int64, release func(*Budget, int64)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if over := l.inUse - max(n, 0); over > 0 {
		l.inUse -= over
		release(l.memory, over)
	}
}

// Release gives everything back. Nothing can be acquired afterwards. It is
// idempotent.
func (l *Lease) Release() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.memory.Release(l.inUse)
	l.disk.Release(l.files)
	l.inUse, l.files = 0, 0
}

type leaseKey struct{}

// With returns ctx with the lease of the call that it belongs to.
func With(ctx context.Context, l *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// From returns the lease of ctx, or nil.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

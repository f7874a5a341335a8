package session

import (
	"context"
	"slices"
	"sync"
	"time"
)

// poolAuto is how long a sandbox is kept ready after another session was
// opened.
const poolAuto = 3 * time.Minute

// pool keeps fresh sandboxes ready for new sessions. It fills in the
// background, one sandbox at a time, once the sessions have been answered.
type pool struct {
	config   config
	prepared *preparedSnapshot
	most     int
	expire   time.Duration // 0: never
	all      *pools        // of the set

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	ready   []*instance
	dropped bool // emptied for another template's, until a session is opened
	wanted  bool // to be filled: set by the first execution, and in auto mode by each new session
	filling bool
	timer   *time.Timer
	closed  bool
}

// newPool returns nil if no sandboxes are to be kept ready.
func newPool(config config, base *preparedSnapshot, all *pools) *pool {
	p := &pool{config: config, prepared: base, all: all, most: config.Pool, wanted: true}
	if config.Pool == PoolAuto {
		p.most, p.expire = 1, poolAuto
	}
	if p.most <= 0 {
		return nil
	}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// take returns a ready sandbox, or nil.
func (p *pool) take(s *Session) *instance {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted, p.dropped = true, false
	for len(p.ready) > 0 {
		b := p.ready[0]
		p.ready = p.ready[1:]
		if b.dead() {
			go b.destroy()
			continue
		}
		b.log, b.life = s.log.With("run", b.id), s.life.Done()
		return b
	}
	return nil
}

// fill starts filling the pool, if that is wanted and not under way.
func (p *pool) fill() {
	if p == nil {
		return
	}
	p.mu.Lock()
	fill := p.wanted && !p.dropped && !p.filling && !p.closed && len(p.ready) < p.most
	if fill {
		p.filling = true
		p.work.Go(p.start)
	}
	p.mu.Unlock()
	if fill {
		p.all.use(p)
	}
}

// drop empties the pool for another template's.
func (p *pool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped = true; !p.closed {
		p.work.Go(p.empty)
	}
}

// maxPools bounds the templates for which sandboxes are kept ready.
const maxPools = 4

// pools are those of a set that have been filled, most recently used last.
type pools struct {
	mu   sync.Mutex
	list []*pool
}

// use makes room for the sandboxes of a pool: the one that has not been filled
// for longest is emptied.
func (a *pools) use(p *pool) {
	a.mu.Lock()
	a.list = append(slices.DeleteFunc(a.list, func(other *pool) bool { return other == p }), p)
	var out *pool
	if len(a.list) > maxPools {
		out, a.list = a.list[0], slices.Clone(a.list[1:])
	}
	a.mu.Unlock()
	if out != nil {
		out.drop()
	}
}

// start starts sandboxes until enough are ready. After a failure it waits for
// the next execution.
func (p *pool) start() {
	for {
		b, err := p.prepare()
		p.mu.Lock()
		if err == nil && (p.closed || p.dropped) {
			p.filling = false
			p.mu.Unlock()
			b.destroy()
			return
		}
		if err == nil {
			p.ready = append(p.ready, b)
		}
		if err != nil || p.closed || len(p.ready) >= p.most {
			if err != nil && !p.closed {
				p.config.Logger.Warn("no sandbox could be made ready", "error", err)
			}
			p.filling = false
			if p.expire > 0 {
				p.wanted = false
				if p.timer != nil {
					p.timer.Stop()
				}
				p.timer = time.AfterFunc(p.expire, p.empty)
			}
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// prepare starts a sandbox and runs an empty execution in it, so that what a
// first execution touches is in its memory.
func (p *pool) prepare() (*instance, error) {
	b, err := start(p.life, p.config, p.prepared, p.config.Logger, nil)
	if err != nil {
		return nil, err
	}
	if err := b.warm(p.life, nil); err != nil {
		b.destroy()
		return nil, err
	}
	b.conn.Recount(0)
	return b, nil
}

// empty ends the sandboxes that were not taken.
func (p *pool) empty() {
	p.mu.Lock()
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	for _, b := range ready {
		b.destroy()
	}
}

func (p *pool) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.end()
	p.work.Wait()
	p.empty()
}

package session

import (
	"context"
	"sync"
	"time"
)

// poolAuto is how long a sandbox waits that is kept ready because another
// session was just opened.
const poolAuto = 3 * time.Minute

// pool keeps fresh sandboxes ready for new sessions. It fills in the background,
// one sandbox at a time, when the sessions have had their answers.
type pool struct {
	config Config
	base   *base
	most   int
	expire time.Duration // 0: they wait for ever

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	ready   []*box
	wanted  bool // to be filled: set by the first execution, and in auto by each new session
	filling bool
	timer   *time.Timer
	closed  bool
}

// newPool returns nil where none are to be ready.
func newPool(config Config, base *base) *pool {
	p := &pool{config: config, base: base, most: config.Pool, wanted: true}
	if config.Pool == PoolAuto {
		p.most, p.expire = 1, poolAuto
	}
	if p.most <= 0 {
		return nil
	}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// take returns a sandbox that is ready, or nil.
func (p *pool) take(s *Session) *box {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
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

// fill begins to fill the pool, if that is wanted and not under way.
func (p *pool) fill() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.filling || p.closed || len(p.ready) >= p.most {
		return
	}
	p.filling = true
	p.all.Go(p.work)
}

// work starts sandboxes until enough are ready. After a failure it waits for
// the next execution.
func (p *pool) work() {
	for {
		b, err := p.prepare()
		p.mu.Lock()
		if err == nil && p.closed {
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

// prepare starts a sandbox and lets it run nothing once: what a first execution
// touches is in its memory then.
func (p *pool) prepare() (*box, error) {
	b, err := start(p.life, p.config, p.base, p.config.Logger, nil)
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

// empty ends the sandboxes that nobody took.
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
	p.all.Wait()
	p.empty()
}

package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// doing is a call in flight of which the server may ask something, or tell.
type doing struct {
	server *Server
	host   Host            // nil: the call is made for no one who can be asked
	ctx    context.Context // ends with the call
	limit  *Limit
	token  int64 // of its progress; 0: it is not wanted
}

type doingKey struct{}

// enter begins a call; leave ends it with its error.
func (s *Server) enter(ctx context.Context) (d *doing, leave func(error)) {
	d = &doing{server: s, host: HostOf(ctx)}
	ctx, limit, end := WithLimit(ctx, s.callTimeout)
	d.limit = limit
	d.ctx = context.WithValue(ctx, doingKey{}, d)
	forget := func() {}
	if d.host != nil {
		d.token, forget = s.progress.listen(func(p Progress) {
			p.Message = told(s.def, p.Message, maxProgressMessage)
			d.host.Progress(p)
		})
	}
	s.doing.add(d)
	s.caller.calls(s.client)
	done := s.begin()
	return d, func(err error) {
		s.doing.remove(d, err)
		forget()
		end()
		done(err)
	}
}

// takes says what the server may ask of the call's host.
func (d *doing) takes() inquiry.Takes {
	if d.host == nil {
		return inquiry.Takes{}
	}
	return d.server.may.And(d.host.Takes())
}

// aside is what the parameters of the call's requests have besides their members.
func (d *doing) aside() aside {
	return aside{token: d.token, span: tracecontext.From(d.ctx), takes: d.takes(), logs: d.host != nil}
}

// undertaken are the calls in flight on a connection, in their order.
type undertaken struct {
	mu   sync.Mutex
	list []*doing
	left []leftOver
}

// leftOver is the client of a call that has ended without an answer: the server may
// still be at work on it, and ask.
type leftOver struct {
	origin string
	until  time.Time
}

// atWork is how long a server may go on with a call that it need not answer.
const atWork = time.Minute

// origin tells the client of the call from others; a call without a host has none.
func (d *doing) origin() string {
	if d.host == nil {
		return ""
	}
	return d.host.Origin()
}

func (u *undertaken) add(d *doing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, d)
}

func (u *undertaken) remove(d *doing, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if d.ctx.Err() != nil && err != nil {
		u.left = append(u.left, leftOver{d.origin(), time.Now().Add(atWork)})
	}
	for i, each := range u.list {
		if each == d {
			u.list = append(u.list[:i:i], u.list[i+1:]...) // not in place: see meant
			return
		}
	}
}

// Why there is no one to ask, in words for the server.
var (
	errNoCall   = errors.New("no call is in progress, so there is no one to ask")
	errNoHost   = errors.New("the calls in progress are made for no one who can be asked")
	errSeveral  = errors.New("calls of several clients are in progress, so it is not clear whom to ask")
	errCallOver = errors.New("the call has ended")
)

// meant returns the calls that a message of the server may be about, all of one
// client, with the newest last. ctx has the call on whose stream the message came,
// if there is one. A message on a stream of the whole connection says nothing about
// the call that it belongs to.
func (u *undertaken) meant(ctx context.Context) ([]*doing, error) {
	if d, ok := ctx.Value(doingKey{}).(*doing); ok {
		if d.host == nil {
			return nil, errNoHost
		}
		return []*doing{d}, nil
	}
	u.mu.Lock()
	list := u.list[:len(u.list):len(u.list)]
	now := time.Now()
	u.left = slices.DeleteFunc(u.left, func(l leftOver) bool { return l.until.Before(now) })
	left := slices.Clone(u.left)
	u.mu.Unlock()
	if len(list) == 0 {
		return nil, errNoCall
	}
	hosts := 0
	for _, d := range list {
		if d.host != nil {
			hosts++
		}
	}
	if hosts == 0 {
		return nil, errNoHost
	}
	for _, d := range list {
		if d.host == nil || d.host.Origin() != list[0].host.Origin() {
			return nil, errSeveral
		}
	}
	for _, l := range left {
		if l.origin != list[0].host.Origin() {
			return nil, errSeveral
		}
	}
	return list, nil
}

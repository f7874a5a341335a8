package bridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// SignsIn is a Source at whose servers the user can sign in, see
// [upstream.Manager.SignIn].
type SignsIn interface {
	SignIn(ctx context.Context, name string, open func(want string) (oauth.Redirect, error)) (oauth.Status, error)
}

func (m manager) SignIn(ctx context.Context, name string, open func(want string) (oauth.Redirect, error)) (oauth.Status, error) {
	return m.m.SignIn(ctx, name, open)
}

// signInTime bounds a sign-in that was offered, with the wait for the person.
const signInTime = 5 * time.Minute

// errNotSignedIn means that the person does not want to sign in.
var errNotSignedIn = errors.New("the user did not sign in")

type executionKey struct{}

// within returns the context of what the execution does: in its session, and with
// sign-ins offered to its client.
func (x *Execution) within(ctx context.Context) context.Context {
	return context.WithValue(upstream.InSession(ctx, x.session), executionKey{}, x)
}

// signingIn calls do, and calls it once more if the user had to sign in at the
// permit's server first and has done so. The permit that needs the server is enough
// for that: the question is not the server's but ours.
func signingIn[T any](ctx context.Context, b *Bridge, permit *authz.Permit, do func() (T, error)) (T, error) {
	began := time.Now()
	got, err := do()
	x, name, ok := b.signedIn(ctx, permit, began, err)
	if !ok {
		return got, err
	}
	got, err = do()
	if asks := (*oauth.SignInError)(nil); errors.As(err, &asks) {
		x.decline(name) // it wants what the user cannot give
	}
	return got, err
}

// answered is exchange, with the sign-in that the call turns out to need. The call
// is then sent again, although it may change something: a server that answers 401
// or 403, for want of a token or of a scope (step-up), has refused the request itself
// and done nothing. One whose stream broke may have begun; its error is ErrGone
// whatever it answered later, see signedIn.
func (x *Execution) answered(ctx context.Context, permit *authz.Permit, h *host) (json.RawMessage, error) {
	return signingIn(ctx, x.bridge, permit, func() (json.RawMessage, error) { return x.exchange(ctx, permit, h) })
}

// signedIn reports whether the user has signed in, since began, at the permit's
// server, where err says that they have to. It offers that to the client of the
// execution that ctx is of, if the client opens URLs for the user.
func (b *Bridge) signedIn(ctx context.Context, permit *authz.Permit, began time.Time, err error) (x *Execution, name string, ok bool) {
	var asks *oauth.SignInError
	if !errors.As(err, &asks) || errors.Is(err, upstream.ErrGone) || ctx.Err() != nil {
		return nil, "", false
	}
	x, _ = ctx.Value(executionKey{}).(*Execution)
	source, can := b.config.Source.(SignsIn)
	if x == nil || !can || b.config.Inquiries == nil || !x.principal.Takes.URLs {
		return nil, "", false
	}
	if name, err = permitted(permit); err != nil {
		return nil, "", false
	}
	server, err := b.server(name)
	if err != nil {
		return nil, "", false
	}
	key := offerKey{x.principal.Owner, asks.Login.Identity()}
	for ctx.Err() == nil && !x.declined(name) {
		// It may have been here, in another process or with the command line.
		if status, found, err := asks.Login.Status(); err == nil && found && status.Ended == "" && status.Since.After(began) {
			return x, name, true
		}
		o, first := join(key)
		if first {
			func() {
				defer o.leave(key)
				if o.done, o.over = b.offer(ctx, x, source, server); o.over && !o.done {
					x.decline(name) // before others of the execution can begin another one
				}
			}()
		}
		select {
		case <-o.ended:
		case <-ctx.Done():
			return nil, "", false
		}
		if o.over {
			if !o.done {
				x.decline(name)
			}
			return x, name, o.done
		}
		// Who made the offer is gone, and has taken it along.
	}
	return nil, "", false
}

// decline ends the offers of sign-ins at a server for this execution.
func (x *Execution) decline(server string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unsigned == nil {
		x.unsigned = map[string]bool{}
	}
	x.unsigned[server] = true
}

func (x *Execution) declined(server string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unsigned[server]
}

// offers are the sign-ins that are offered now. They are of the process: its Bridges,
// one of each client, share the user's logins.
var offers = struct {
	sync.Mutex
	open map[offerKey]*offer
}{open: map[offerKey]*offer{}}

// offerKey is a user's login.
type offerKey struct {
	owner string
	login any
}

// offer is a sign-in that is offered. All who need it wait for it.
type offer struct {
	ended      chan struct{}
	done, over bool // once ended: the user has signed in; was asked
}

// join returns the offer of a key, which it begins if there is none.
func join(key offerKey) (o *offer, first bool) {
	offers.Lock()
	defer offers.Unlock()
	if o = offers.open[key]; o != nil {
		return o, false
	}
	o = &offer{ended: make(chan struct{})}
	offers.open[key] = o
	return o, true
}

// leave ends an offer.
func (o *offer) leave(key offerKey) {
	offers.Lock()
	defer offers.Unlock()
	delete(offers.open, key)
	close(o.ended)
}

// offer offers a sign-in, and waits for it. over is false if ctx has ended before.
func (b *Bridge) offer(ctx context.Context, x *Execution, source SignsIn, server *authz.Server) (done, over bool) {
	within, cancel := context.WithTimeoutCause(ctx, signInTime, fmt.Errorf("%w within %s", errNotSignedIn, signInTime))
	defer cancel()
	_, err := source.SignIn(within, server.Name, func(want string) (oauth.Redirect, error) {
		s := &shown{inquiries: b.config.Inquiries, principal: x.principal, server: server}
		var err error
		if s.Redirect, err = oauth.Loopback(want, s.show); err != nil {
			return nil, err
		}
		return s, nil
	})
	switch {
	case err == nil:
		return true, true
	case ctx.Err() != nil:
		return false, false
	}
	// The code gets the error from before: it has the command with which the user can
	// sign in later.
	b.log.Info("the user did not sign in at an MCP server", "server", server.Name, "error", err)
	return false, true
}

// shown is a redirect to this computer whose address the agent's client shows. The
// question ends with the visit, because the browser may be back before it is answered.
type shown struct {
	oauth.Redirect
	inquiries Inquiries
	principal authz.Principal
	server    *authz.Server

	end    context.CancelCauseFunc // of the visit
	asking sync.WaitGroup
}

func (s *shown) Visit(ctx context.Context, address string) (string, error) {
	ctx, s.end = context.WithCancelCause(ctx)
	defer s.asking.Wait()
	defer s.end(nil)
	return s.Redirect.Visit(ctx, address)
}

// show asks the person to visit an address; where they do not, it ends the visit.
func (s *shown) show(ctx context.Context, address string) error {
	request, err := signInRequest(s.server, address)
	if err != nil {
		return err
	}
	s.asking.Go(func() {
		result, err := s.inquiries.Inquire(ctx, s.principal, s.server, request)
		var answer struct {
			Action string `json:"action"`
		}
		switch {
		case err != nil:
		case json.Unmarshal(result, &answer) != nil || answer.Action != "accept":
			err = errNotSignedIn
		default:
			return
		}
		s.end(err)
	})
	return nil
}

// signInRequest is the question whether the user signs in at a server, with the page
// of its authorization server. An address that no server could have the user open
// is refused, without it in the error: it has the state of the sign-in.
func signInRequest(server *authz.Server, address string) (*inquiry.Request, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the address of the sign-in cannot be read")
	}
	short := func(s string) string { return invisible.Line(clip(s, 200)) }
	params, err := json.Marshal(map[string]string{
		"mode": "url", "url": address, "elicitationId": rand.Text(),
		"message": fmt.Sprintf("Sign in at %q (%s): the page of %s opens, in a browser on the computer that Sallyport runs on. "+
			"Sallyport keeps the login; agents and their code never see it.", short(server.Name), short(server.Started), short(u.Host)),
	})
	if err != nil {
		return nil, err
	}
	request, err := inquiry.Parse(inquiry.Elicitation, params)
	if err != nil {
		return nil, errors.New("the address of the sign-in cannot be shown to the user")
	}
	request.Ours = true
	return request, nil
}

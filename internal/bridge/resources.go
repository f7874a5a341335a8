package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// Offers is what a [Server] may have besides tools, as [upstream.Server]
// describes it.
type Offers interface {
	Resources(ctx context.Context) (json.RawMessage, error)
	ResourceTemplates(ctx context.Context) (json.RawMessage, error)
	ReadResource(ctx context.Context, uri string) (json.RawMessage, error)
	Prompts(ctx context.Context) (json.RawMessage, error)
	GetPrompt(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
}

// maxURI bounds the address of a resource, and the name of a prompt.
const maxURI = 64 << 10

// offered answers the methods about a server's resources and prompts. They need
// the same grant as its tools.
func (x *Execution) offered(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	p, err := parseParams(call.Params)
	if err != nil {
		return nil, err
	}
	if len(p.uri) > maxURI || len(p.name) > maxURI {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: fmt.Sprintf("'uri' and 'name' may have %d bytes", maxURI)}
	}
	switch {
	case call.Method == wire.MethodReadResource && p.uri == "":
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing 'uri' value"}
	case call.Method == wire.MethodGetPrompt && p.name == "":
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing 'name' value"}
	}
	switch call.Method {
	case wire.MethodListResources:
		return x.listOffered(ctx, p.server, pins.Resource)
	case wire.MethodListResourceTemplates:
		return x.listOffered(ctx, p.server, pins.Template)
	case wire.MethodListPrompts:
		return x.listOffered(ctx, p.server, pins.Prompt)
	case wire.MethodReadResource:
		return x.readResource(ctx, p)
	default:
		return x.getPrompt(ctx, p)
	}
}

// listOffered answers with one list of what a granted server offers.
func (x *Execution) listOffered(ctx context.Context, name string, kind pins.Kind) (json.RawMessage, error) {
	permit, err := x.list(ctx, name)
	if err != nil {
		return nil, err
	}
	result, err := x.withServer(ctx, &permit, func(server Server) (json.RawMessage, error) {
		return x.bridge.listOf(ctx, name, server, &permit, kind)
	})
	finish(&permit, len(result), err)
	return result, err
}

// withServer opens the server of a permit and calls use when one more call may
// be in flight.
func (x *Execution) withServer(ctx context.Context, permit *authz.Permit, use func(Server) (json.RawMessage, error)) (json.RawMessage, error) {
	server, err := x.bridge.open(ctx, permit)
	if err != nil {
		return nil, err
	}
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	defer x.leave()
	return use(server)
}

func (x *Execution) readResource(ctx context.Context, p params) (json.RawMessage, error) {
	form, err := x.offeredForm(ctx, p.server, p.uri, pins.Resource, pins.Template)
	if err != nil {
		return nil, err
	}
	s, err := x.bridge.server(p.server)
	if err != nil {
		return nil, err
	}
	permit, err := x.admit(ctx, authz.ReadResource{Server: s, Granted: x.isGranted(p.server), URI: p.uri, Form: form, Counts: &x.counts})
	if err != nil {
		return nil, err
	}
	return x.send(ctx, &permit, false)
}

func (x *Execution) getPrompt(ctx context.Context, p params) (json.RawMessage, error) {
	form, err := x.offeredForm(ctx, p.server, p.name, pins.Prompt)
	if err != nil {
		return nil, err
	}
	s, err := x.bridge.server(p.server)
	if err != nil {
		return nil, err
	}
	permit, err := x.admit(ctx, authz.GetPrompt{Server: s, Granted: x.isGranted(p.server), Prompt: p.name, Form: form, Arguments: p.arguments, Counts: &x.counts})
	if err != nil {
		return nil, err
	}
	result, err := x.send(ctx, &permit, false)
	if clean := invisible.StripJSON(result, invisible.Message); err == nil && !bytes.Equal(clean, result) {
		result = clean
		x.note(fmt.Sprintf("server %s hides characters in what prompt %s says; they were removed", invisible.Line(p.server), invisible.Line(clip(p.name, 60))))
	}
	return result, err
}

// offeredList is rawList, except that a list that a server does not have is
// empty.
func offeredList(ctx context.Context, server Server, permit *authz.Permit, kind pins.Kind) (json.RawMessage, error) {
	raw, err := rawList(ctx, server, permit, kind)
	if errors.Is(err, upstream.ErrNotOffered) {
		return json.RawMessage("[]"), nil
	}
	return raw, err
}

// look compares lists of a server with what was accepted.
func (b *Bridge) look(ctx context.Context, name string, server Server, permit *authz.Permit, kinds ...pins.Kind) error {
	d, ok := b.current(false).servers[name]
	if !ok || b.config.Pins == nil {
		return nil
	}
	var all []pins.Listed
	for _, kind := range kinds {
		raw, err := offeredList(ctx, server, permit, kind)
		if err != nil {
			return err
		}
		all = append(all, pins.List(kind, raw))
	}
	_, _ = b.compare(d, all...) // checked says that it failed
	return nil
}

// listOf returns a list as code may read it: without hidden characters and, if
// changes are refused, in the form that was accepted.
func (b *Bridge) listOf(ctx context.Context, name string, server Server, permit *authz.Permit, kind pins.Kind) (json.RawMessage, error) {
	d, ok := b.current(false).servers[name]
	if !ok {
		return nil, b.unknown(name)
	}
	raw, err := rawList(ctx, server, permit, kind)
	if errors.Is(err, upstream.ErrNotOffered) {
		_, _ = b.compare(d, pins.None(kind)) // what it offers later is new; the answer is an error anyway
	}
	if err != nil {
		return nil, b.failed(ctx, name, err, true)
	}
	if _, err := b.compare(d, pins.List(kind, raw)); err != nil && b.config.Gate.RefusesChanged() {
		return nil, &wire.CallError{Kind: wire.KindDenied, Message: fmt.Sprintf(
			"server '%s': what it offers cannot be compared with what was accepted, so it is refused; the log says why", name)}
	}
	forms := b.acceptedForms(Pinned(d))
	list := []json.RawMessage{}
	_ = jsonscan.Elements(raw, func(value json.RawMessage) bool { // validated on arrival
		name := pins.NameOf(kind, value)
		form, ok := forms(kind, name)
		if !ok || name == "" && b.config.Gate.RefusesChanged() { // what has no name cannot be accepted
			return true
		}
		if form != nil {
			value = form.JSON(kind, name)
		}
		list = append(list, invisible.StripJSON(value, invisible.Item))
		return true
	})
	return joined(list), nil
}

// offeredForm compares a resource or a prompt with what was accepted. It asks
// the server for its lists, which needs a permit of its own: each time if
// changes are refused, else once, to note changes. One that the server does not
// list counts as accepted as long as nothing of its kinds has changed.
func (x *Execution) offeredForm(ctx context.Context, name, item string, kinds ...pins.Kind) (authz.Form, error) {
	b := x.bridge
	d, ok := b.current(false).servers[name]
	if !ok || b.config.Pins == nil {
		return authz.FormAccepted, nil
	}
	refuse := b.config.Gate.RefusesChanged()
	if !refuse && !x.isGranted(name) {
		return authz.FormNotCompared, nil
	}
	permit, err := x.list(ctx, name)
	if err != nil {
		return authz.FormNotCompared, err
	}
	_, err = x.withServer(ctx, &permit, func(server Server) (json.RawMessage, error) {
		if _, err := offersOf(server, name); err != nil {
			return nil, err
		}
		if !refuse {
			b.lookOnce(ctx, name, server, &permit, kinds...)
			return nil, nil
		}
		return nil, b.failed(ctx, name, b.look(ctx, name, server, &permit, kinds...), true)
	})
	finish(&permit, 0, err)
	if err != nil || !refuse {
		return authz.FormNotCompared, err
	}
	report, err := b.checked(Pinned(d))
	if err != nil {
		return authz.FormUnreadable, nil // the gate says so
	}
	differs := slices.Concat(report.OtherChanged, report.OtherNew)
	switch {
	case slices.Contains(differs, kinds[0].Label(item)):
		return authz.FormDiffers, nil
	case slices.ContainsFunc(differs, func(other string) bool {
		kind, _, _ := strings.Cut(other, " ")
		return slices.Contains(kinds, pins.Kind(kind))
	}):
		if accepted, _, err := b.config.Pins.Form(Pinned(d), kinds[0], item); err != nil || accepted == nil {
			return authz.FormUnlisted, nil
		}
	}
	return authz.FormAccepted, nil
}

// lookOnce compares lists of a running server with what was accepted, the first
// time.
func (b *Bridge) lookOnce(ctx context.Context, name string, server Server, permit *authz.Permit, kinds ...pins.Kind) {
	key := serverKind{name, kinds[0]}
	b.mu.Lock()
	done := b.looked[key] == server
	b.looked[key] = server
	b.mu.Unlock()
	if !done {
		_ = b.look(ctx, name, server, permit, kinds...) // only noted
	}
}

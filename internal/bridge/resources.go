package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport/internal/hidden"
	"sallyport/internal/pins"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/wire"
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
	server, err := x.open(ctx, p.server)
	if err != nil {
		return nil, err
	}
	offers, ok := server.(Offers)
	if !ok {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: fmt.Sprintf("Server '%s' has tools only", p.server)}
	}
	select {
	case x.calls <- struct{}{}:
		defer func() { <-x.calls }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b := x.bridge
	var result json.RawMessage
	switch call.Method {
	case wire.MethodListResources:
		result, err = b.listOf(ctx, p.server, offers, pins.Resource)
	case wire.MethodListResourceTemplates:
		result, err = b.listOf(ctx, p.server, offers, pins.Template)
	case wire.MethodListPrompts:
		result, err = b.listOf(ctx, p.server, offers, pins.Prompt)
	case wire.MethodReadResource:
		if err = b.permitOffered(ctx, p.server, offers, p.uri, pins.Resource, pins.Template); err == nil {
			result, err = offers.ReadResource(ctx, p.uri)
		}
	default:
		if err = b.permitOffered(ctx, p.server, offers, p.name, pins.Prompt); err == nil {
			result, err = offers.GetPrompt(ctx, p.name, p.arguments)
		}
		if clean := hidden.StripJSON(result, hidden.Message); err == nil && !bytes.Equal(clean, result) {
			result = clean
			x.note(fmt.Sprintf("server %s hides characters in what prompt %s says; they were removed", hidden.Line(p.server), hidden.Line(clip(p.name, 60))))
		}
	}
	return result, b.failed(ctx, p.server, err, true)
}

// rawList is one list of what a server offers, as it sends it.
func rawList(ctx context.Context, offers Offers, kind pins.Kind) (json.RawMessage, error) {
	switch kind {
	case pins.Resource:
		return offers.Resources(ctx)
	case pins.Template:
		return offers.ResourceTemplates(ctx)
	default:
		return offers.Prompts(ctx)
	}
}

// offeredList is rawList, where a list that a server does not have is empty.
func offeredList(ctx context.Context, offers Offers, kind pins.Kind) (json.RawMessage, error) {
	raw, err := rawList(ctx, offers, kind)
	if errors.Is(err, upstream.ErrNotOffered) {
		return json.RawMessage("[]"), nil
	}
	return raw, err
}

// itemsOf reads a list.
func itemsOf(kind pins.Kind, raw json.RawMessage) pins.Listed {
	listed := pins.Listed{Kind: kind}
	_ = jsonrpc.Elements(raw, func(value json.RawMessage) bool { // valid since it arrived
		if it, ok := pins.ItemOf(kind, value); ok {
			listed.Items = append(listed.Items, it)
		}
		return true
	})
	return listed
}

// look compares lists of a server with what was accepted.
func (b *Bridge) look(ctx context.Context, server string, offers Offers, kinds ...pins.Kind) error {
	d, ok := b.current(false).servers[server]
	if !ok || b.config.Pins == nil {
		return nil
	}
	var all []pins.Listed
	for _, kind := range kinds {
		raw, err := offeredList(ctx, offers, kind)
		if err != nil {
			return err
		}
		all = append(all, itemsOf(kind, raw))
	}
	_, _ = b.compare(d, all...) // checked says that it failed
	return nil
}

// listOf is a list as code may read it: without hidden characters, and, where
// changes are refused, in the form that was accepted.
func (b *Bridge) listOf(ctx context.Context, server string, offers Offers, kind pins.Kind) (json.RawMessage, error) {
	d, ok := b.current(false).servers[server]
	if !ok {
		return nil, b.unknown(server)
	}
	raw, err := rawList(ctx, offers, kind)
	if errors.Is(err, upstream.ErrNotOffered) {
		_, _ = b.compare(d, pins.Listed{Kind: kind}) // what it offers later is new; the answer is an error anyway
	}
	if err != nil {
		return nil, err
	}
	if _, err := b.compare(d, itemsOf(kind, raw)); err != nil && b.config.RefuseChanged {
		return nil, unknownAccepted(server)
	}
	vetted := b.vetted(Pinned(d))
	list := []json.RawMessage{}
	_ = jsonrpc.Elements(raw, func(value json.RawMessage) bool { // valid since it arrived
		it, named := pins.ItemOf(kind, value)
		form, ok := vetted(kind, it.Name)
		if !ok || !named && b.config.RefuseChanged { // what has no name cannot be accepted
			return true
		}
		if form != nil {
			value = form.JSON(kind.Key(), it.Name)
		}
		list = append(list, hidden.StripJSON(value, hidden.Item))
		return true
	})
	return joined(list), nil
}

// permitOffered refuses to read a resource or a prompt that is not as it was
// accepted, where that is set. One that the server does not list may be read
// while nothing of its kinds has changed.
func (b *Bridge) permitOffered(ctx context.Context, server string, offers Offers, name string, kinds ...pins.Kind) error {
	d, ok := b.current(false).servers[server]
	if !ok || b.config.Pins == nil {
		return nil
	}
	if !b.config.RefuseChanged {
		key := serverKind{server, kinds[0]}
		b.mu.Lock()
		done := b.looked[key] == offers
		b.looked[key] = offers
		b.mu.Unlock()
		if !done {
			_ = b.look(ctx, server, offers, kinds...) // only noted
		}
		return nil
	}
	if err := b.look(ctx, server, offers, kinds...); err != nil {
		return err
	}
	report, err := b.checked(Pinned(d))
	if err != nil {
		return unknownAccepted(server)
	}
	differs := slices.Concat(report.OtherChanged, report.OtherNew)
	label := kinds[0].Label(name)
	why := ""
	switch {
	case slices.Contains(differs, label):
		why = "the server describes it differently from when it was accepted, or did not have it"
	case slices.ContainsFunc(differs, func(other string) bool {
		kind, _, _ := strings.Cut(other, " ")
		return slices.Contains(kinds, pins.Kind(kind))
	}):
		if accepted, _, err := b.config.Pins.Form(Pinned(d), kinds[0], name); err != nil || accepted == nil {
			why = "the server does not list it, and has changed what it lists since that was accepted"
		}
	}
	if why == "" {
		return nil
	}
	return &wire.CallError{Kind: wire.KindDenied, Message: fmt.Sprintf(
		"%s of server '%s' is refused: %s; the user can look at it and accept it with `sallyport servers approve %s`",
		clip(label, 200), server, why, shellWord(server))}
}

func unknownAccepted(server string) error {
	return &wire.CallError{Kind: wire.KindDenied, Message: fmt.Sprintf(
		"server '%s': what it offers cannot be compared with what was accepted, so it is refused; the log says why", server)}
}

// facts answers what holds for the session.
func (x *Execution) facts() (json.RawMessage, error) {
	return json.Marshal(x.bridge.config.Facts)
}

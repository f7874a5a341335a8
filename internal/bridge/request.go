package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/wire"
)

// maxRequest bounds the definition of a server that code asks for.
const maxRequest = 16 << 10

// Requester is a Source that can add servers that code requests. Errors of its
// methods are fit to be shown to the code.
type Requester interface {
	// ParseRequest parses a definition, which is one JSON object of bounded size
	// and otherwise unchecked. It expands none of the user's variables.
	ParseRequest(name string, definition json.RawMessage) (upstream.Definition, error)
	// AddRequested adds a parsed definition to the Definitions, for the life of
	// the process. The gate has allowed it.
	AddRequested(upstream.Definition) error
	// NoteRequest stores the request, for the user to decide.
	NoteRequest(name string, definition json.RawMessage) error
	// Requested names the requests that wait for the user.
	Requested() []string
}

// requestServer adds a server that is not configured and grants it, if the gate
// allows it; otherwise it stores the request and says so.
func (x *Execution) requestServer(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	var name string
	var definition json.RawMessage
	err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "name":
			if json.Unmarshal(value, &name) != nil {
				name = ""
			}
		case "definition":
			definition = value
		}
		return true
	})
	refuse := func(kind, format string, args ...any) (json.RawMessage, error) {
		return nil, &wire.CallError{Kind: kind, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case err != nil || name == "":
		return refuse(wire.KindInvalid, "'name' must be a string")
	case jsonscan.Kind(definition) != '{':
		return refuse(wire.KindInvalid, `the definition must be an object: {"command": "npx", "args": ["-y", "some-server"]} or {"url": "https://…"}`)
	case len(definition) > maxRequest:
		return refuse(wire.KindLimit, "the definition is larger than %d bytes", maxRequest)
	}
	if configured, ok := x.bridge.current(true).facts[name]; ok {
		if err := x.bridge.Check(ctx, x.principal, name); err != nil {
			return nil, err
		}
		return refuse(wire.KindInvalid, "Server '%s' is configured already; %s", name, wayTo(configured))
	}
	source, ok := x.bridge.config.Source.(Requester)
	if !ok {
		return refuse(wire.KindUnsupported, "servers cannot be requested here")
	}
	d, err := source.ParseRequest(name, definition)
	if err != nil {
		return refuse(wire.KindInvalid, "Server '%s' cannot be requested: %v", clip(name, 100), err)
	}
	facts := requestFacts(d)
	facts.Definition = definition
	permit, err := x.admit(ctx, facts)
	var denied *authz.Denied
	switch {
	case errors.As(err, &denied) && denied.Effect == authz.Ask && denied.Answer == nil:
		if noted := source.NoteRequest(name, definition); noted != nil {
			return refuse(wire.KindInvalid, "Server '%s' cannot be requested: %v", clip(name, 100), noted)
		}
		return refuse(wire.KindDenied, "%v. The request was noted. Ask the user to look at it and approve it with: sallyport servers approve %s", err, terminal.ShellWord(name))
	case err != nil:
		return nil, err
	}
	err = source.AddRequested(d)
	finish(&permit, 0, err)
	if err != nil {
		return refuse(wire.KindInvalid, "Server '%s' cannot be requested: %v", clip(name, 100), err)
	}
	x.bridge.current(true)
	return x.grantServer(ctx, name)
}

// requestFacts returns what the rules know about a definition that code asks
// for. Anything in it but a command line, or a URL with headers, leaves both
// empty.
func requestFacts(d upstream.Definition) authz.RequestServer {
	r := authz.RequestServer{Server: &authz.Server{Name: d.Name}}
	if remote := d.Remote(); remote != nil {
		if remote.TLS == (definitions.TLS{}) {
			r.URL = remote.URL
		}
		return r
	}
	if l := d.Launch(); len(l.Env) == 0 && l.Dir == "" {
		r.Command = append([]string{l.Command}, l.Args...)
	}
	return r
}

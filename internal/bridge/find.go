package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sallyport/internal/hidden"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/wire"
)

// Bounds of an answer, and of what code may ask for.
const (
	maxServersFound = 50
	maxRequest      = 16 << 10
)

// Requester is a Source that code can ask for servers that are not configured.
type Requester interface {
	// Request asks for a server. Granted: it is among the Definitions from now
	// on. Otherwise the wish was noted, for the user to decide. An error is fit
	// to be shown to the code. The definition is one JSON object of bounded
	// size; nothing else of it has been checked.
	Request(name string, definition json.RawMessage) (granted bool, err error)
	// Requested names what was noted and not decided.
	Requested() []string
}

// serverFound is a server as find_servers describes it.
type serverFound struct {
	Name        string `json:"name"`
	Alias       string `json:"alias,omitempty"`
	Description string `json:"description,omitempty"`
	// State is ready, disabled, offered, changed or requested.
	State string `json:"state"`
	// How says how to get at it.
	How string `json:"how"`
}

// wayTo says how a server that is not in force comes into force.
func wayTo(d upstream.Definition) string {
	switch {
	case d.Disabled:
		return "the user can switch it on: sallyport servers enable " + shellWord(d.Name)
	case d.Offer == "changed":
		return "it changed since the user trusted the project; the user can look at it and trust it: sallyport servers trust"
	case d.Offer != "":
		return "the user can look at it and trust the project: sallyport servers trust"
	}
	return fmt.Sprintf("await runtime.load_server(%q)", d.Name)
}

// shellWord quotes a name for a shell, where it has to be.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./@:", r))
	}
	if s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, plain) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// findServers answers with the servers in whose words all words of the query
// occur, those with more of them in the name first: configured ones that the
// policy lets through, what projects offer, what is disabled or was asked for.
func (x *Execution) findServers(raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseDocsParams(raw)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(clip(p.Query, 1000)))
	b := x.bridge
	var all []serverFound
	v := b.current(false)
	for _, d := range v.servers {
		if b.config.Policy.CheckServer(d.Name) != nil {
			continue
		}
		f := serverFound{Name: d.Name, Alias: d.Alias, State: d.State(), How: wayTo(d)}
		if d.Offer == "" { // nobody has vouched yet for what a project says
			f.Description = clip(hidden.Strip(d.Description), 1000)
		}
		all = append(all, f)
	}
	if r, ok := b.config.Source.(Requester); ok {
		for _, name := range r.Requested() {
			if _, configured := v.servers[name]; !configured {
				all = append(all, serverFound{Name: name, State: "requested",
					How: "it was asked for; the user can look at it and grant it: sallyport servers approve " + shellWord(name)})
			}
		}
	}
	type hit struct {
		serverFound
		inName int
	}
	hits := make([]hit, 0, len(all))
next:
	for _, f := range all {
		name := strings.ToLower(f.Name + " " + f.Alias)
		text := name + " " + strings.ToLower(f.Description)
		inName := 0
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue next
			}
			if strings.Contains(name, w) {
				inName++
			}
		}
		hits = append(hits, hit{f, inName})
	}
	slices.SortFunc(hits, func(a, b hit) int {
		if c := cmp.Compare(b.inName, a.inName); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	found := make([]serverFound, 0, min(len(hits), maxServersFound))
	for _, h := range hits[:min(len(hits), maxServersFound)] {
		found = append(found, h.serverFound)
	}
	return json.Marshal(found)
}

// requestServer adds a server that is not configured, where the operator lets
// code do so, and grants it; else it notes the wish and says so.
func (x *Execution) requestServer(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	var name string
	var definition json.RawMessage
	err := jsonrpc.Members(raw, func(key string, value json.RawMessage) bool {
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
	case jsonrpc.Kind(definition) != '{':
		return refuse(wire.KindInvalid, `the definition must be an object: {"command": "npx", "args": ["-y", "some-server"]} or {"url": "https://…"}`)
	case len(definition) > maxRequest:
		return refuse(wire.KindLimit, "the definition is larger than %d bytes", maxRequest)
	}
	v := x.bridge.current(true)
	if d, configured := v.servers[name]; configured {
		if err := x.bridge.Check(name); err != nil {
			return nil, x.refusal(name, err)
		}
		return refuse(wire.KindInvalid, "Server '%s' is configured already; %s", name, wayTo(d))
	}
	if err := x.bridge.config.Policy.CheckServer(name); err != nil {
		return refuse(wire.KindDenied, "%v", err)
	}
	source, ok := x.bridge.config.Source.(Requester)
	if !ok {
		return refuse(wire.KindUnsupported, "servers cannot be asked for here")
	}
	granted, err := source.Request(name, definition)
	if err != nil {
		return refuse(wire.KindInvalid, "Server '%s' cannot be requested: %v", clip(name, 100), err)
	}
	if !granted {
		return refuse(wire.KindDenied, "Server '%s' is not configured, and the operator's settings do not let code add it. The request was noted. Ask the user to look at it and grant it with: sallyport servers approve %s", name, shellWord(name))
	}
	x.bridge.current(true)
	return x.grantServer(ctx, name)
}

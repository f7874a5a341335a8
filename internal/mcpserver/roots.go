package mcpserver

//lint:file-ignore SA1019 clients still have roots, in all revisions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const (
	// rootsPlace is the directory of the sandbox in which roots appear.
	rootsPlace = "/roots"
	// maxRoots bounds the roots of one client that are mounted.
	maxRoots = 16
	// maxRootName bounds the name of a root in the sandbox, in bytes.
	maxRootName = 64
	// maxRootNotes bounds the roots that a result names because they are left out.
	maxRootNotes = 3
	// rootsWithin bounds how long calls wait for the answer to roots/list.
	rootsWithin = 15 * time.Second
	// maxRootSessions bounds the sessions of a connection that are remembered.
	maxRootSessions = 1000
	// rootsKey names the request for roots in a result, and is the state with which the
	// client repeats the call: nothing of the call is kept meanwhile.
	rootsKey = "roots"
)

// rootFolders are a client's roots as folders.
type rootFolders struct {
	mounts []sandbox.Mount
	notes  []string // for the agent: what is left out
}

// roots are what a connection knows of its client's roots.
//
// A client with a handshake is asked by a request when code first needs its roots, and
// again after it has said that they changed; calls wait for the answer in their order.
// A client of the stateless revisions is asked by the result of the first call in each
// session.
type roots struct {
	mu      sync.Mutex
	known   rootFolders
	have    bool              // known is what the client said last
	changes uint64            // that the client reported
	asking  chan struct{}     // closed when the request ends; nil: there is none
	answer  json.RawMessage   // the client's own words, by a request; nil: it was not asked, or they have changed
	listing chan struct{}     // holds a token while one goroutine asks for them
	tail    <-chan struct{}   // closed when the last call that waits was submitted; nil: none waits
	asked   map[string]bool   // sessions whose first call was answered with the question
	noted   map[string]string // the notes that a session's results have had
}

// changed has the client asked again before the next call.
func (r *roots) changed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	r.have, r.answer = false, nil
}

// news returns the notes that no result of a session has had.
func (r *roots) news(session string, f rootFolders) []string {
	all := strings.Join(f.notes, "\n")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noted[session] == all {
		return nil
	}
	if r.noted == nil || len(r.noted) >= maxRootSessions {
		r.noted = map[string]string{}
	}
	r.noted[session] = all
	return f.notes
}

// sessionOf returns how the connection names the session of a request.
func sessionOf(req *broker.Request) string { return cmp.Or(req.Session, broker.DefaultSession) }

// declaresRoots reports whether a client that has shaken hands has roots.
func (c *conn) declaresRoots() bool {
	c.mu.Lock()
	handshake := c.protocol != ""
	c.mu.Unlock()
	if !handshake || c.sdk == nil {
		return false
	}
	return c.takesInSession().Roots
}

// wantsRoots reports whether a call of a client that has roots, and can be asked for
// them by a result, is to be answered with that question.
func (c *conn) wantsRoots(arguments json.RawMessage) bool {
	if c.server.config.Root == nil {
		return false
	}
	req, invalid, _ := parseArguments(arguments)
	if invalid != nil || strings.TrimSpace(req.Code) == "" || !c.server.config.mounts(&req) {
		return false
	}
	c.roots.mu.Lock()
	defer c.roots.mu.Unlock()
	return !c.roots.asked[sessionOf(&req)]
}

// wantsRootsOf is wantsRoots for a call that the SDK handles.
func (c *conn) wantsRootsOf(req *mcp.CallToolRequest) bool {
	version, _ := req.Params.Meta[mcp.MetaKeyProtocolVersion].(string)
	if version < tasks.Since || req.Params.RequestState != "" {
		return false
	}
	capabilities := req.ClientCapabilities()
	return capabilities != nil && capabilities.RootsV2 != nil && c.wantsRoots(req.Params.Arguments)
}

// takeRoots reports whether a call is one that the client repeats because it was asked
// for its roots, and notes what it says.
func (c *conn) takeRoots(params *mcp.CallToolParamsRaw) bool {
	if c.server.config.Root == nil || params.RequestState != rootsKey {
		return false
	}
	var f rootFolders
	if answer, ok := params.InputResponses[rootsKey].(*mcp.ListRootsResult); ok && answer != nil {
		f = c.server.config.rootFolders(answer.Roots)
	} else {
		f.notes = []string{"the client was asked for its roots and named none: the sandbox sees none of its folders"}
	}
	req, _, _ := parseArguments(params.Arguments)
	r := &c.roots
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil || len(r.asked) >= maxRootSessions {
		r.asked = map[string]bool{}
	}
	r.asked[sessionOf(&req)] = true
	r.known, r.have = f, true
	return true
}

// rootsInput asks for the client's roots by a result.
var rootsInput = input{tasks.Question{Method: inquiry.Roots, Params: struct{}{}}, rootsKey}

// mounts reports whether the sandbox of a request sees folders of this computer: batch
// services do not.
func (c *Config) mounts(req *broker.Request) bool {
	return req.Backend == "" || len(c.Backends) == 0 || req.Backend == c.Backends[0]
}

// place is Executor.Submit for a request that is to see the client's roots. Where they
// are not known, the request is submitted when it is run, after those before it.
func (c *conn) place(req broker.Request) func(context.Context) *broker.Result {
	if c.server.config.Root == nil || !c.server.config.mounts(&req) {
		return c.server.config.Executor.Submit(req)
	}
	declared := c.declaresRoots()
	r := &c.roots
	r.mu.Lock()
	known, before := r.known, r.tail
	if before != nil {
		select {
		case <-before:
			before, r.tail = nil, nil
		default:
		}
	}
	if before == nil && (r.have || !declared) {
		r.mu.Unlock()
		return c.submitIn(req, known)
	}
	submitted := make(chan struct{})
	r.tail = submitted
	r.mu.Unlock()
	return func(ctx context.Context) *broker.Result {
		if err := await(ctx, before); err != nil {
			go func() { <-before; close(submitted) }() // the order of the others stays
			return broker.CancelledBefore()
		}
		run := func() func(context.Context) *broker.Result {
			defer close(submitted)
			f := c.askRoots(ctx)
			if ctx.Err() != nil {
				return nil
			}
			return c.submitIn(req, f)
		}()
		if run == nil {
			return broker.CancelledBefore()
		}
		return run(ctx)
	}
}

// await waits until a channel is closed; nil is closed.
func await(ctx context.Context, done <-chan struct{}) error {
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// submitIn submits a request whose new session sees these folders.
func (c *conn) submitIn(req broker.Request, f rootFolders) func(context.Context) *broker.Result {
	req.Mounts = f.mounts
	notes := c.roots.news(sessionOf(&req), f)
	run := c.server.config.Executor.Submit(req)
	if len(notes) == 0 {
		return run
	}
	return func(ctx context.Context) *broker.Result { return withHints(run(ctx), notes) }
}

// askRoots returns the client's folders, and asks for them by a request where that is
// needed. A client that does not answer in time has none, until it does.
func (c *conn) askRoots(ctx context.Context) rootFolders {
	r := &c.roots
	late := time.NewTimer(rootsWithin)
	defer late.Stop()
	for {
		r.mu.Lock()
		if r.have {
			defer r.mu.Unlock()
			return r.known
		}
		if r.asking == nil {
			r.asking = make(chan struct{})
			go c.requestRoots(r.asking, r.changes)
		}
		asking := r.asking
		r.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return rootFolders{}
		case <-late.C:
			none := rootFolders{notes: []string{fmt.Sprintf("the client did not answer roots/list in %g s: the sandbox sees none of its folders", rootsWithin.Seconds())}}
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.have { // calls do not wait for it again
				r.known, r.have = none, true
			}
			return none
		}
	}
}

// requestRoots sends roots/list and notes the answer, unless the roots have changed
// again meanwhile. It closes asking.
func (c *conn) requestRoots(asking chan struct{}, changes uint64) {
	var f rootFolders
	var answer mcp.ListRootsResult
	raw, err := c.listRoots(c.input)
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err != nil {
		f.notes = []string{"the client has roots and did not name them: " + shortened(err.Error())}
	} else {
		f = c.server.config.rootFolders(answer.Roots)
	}
	r := &c.roots
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(asking)
	r.asking = nil
	if r.changes == changes {
		r.known, r.have = f, true
	}
}

// listRoots returns what a client with a handshake answers to roots/list. It is asked
// once, and again after it has said that they changed.
func (c *conn) listRoots(ctx context.Context) (json.RawMessage, error) {
	r := &c.roots
	select {
	case r.listing <- struct{}{}:
		defer func() { <-r.listing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r.mu.Lock()
	answer, changes := r.answer, r.changes
	r.mu.Unlock()
	if answer != nil {
		return answer, nil
	}
	answer, err := c.ask(ctx, inquiry.Roots, nil)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == changes {
		r.answer = answer
	}
	return answer, nil
}

// rootFolders returns roots as folders that may be mounted, read-only, in an order that
// depends on nothing else.
func (c *Config) rootFolders(roots []*mcp.Root) (f rootFolders) {
	var refused []string
	more := len(roots) - maxRoots
	names := map[string]bool{}
	for _, root := range roots[:min(len(roots), maxRoots)] {
		if root == nil {
			continue
		}
		m, err := c.rootFolder(root, names)
		switch {
		case err != nil:
			refused = append(refused, "root left out: "+shortened(err.Error()))
		case slices.ContainsFunc(f.mounts, func(other sandbox.Mount) bool { return other.Source == m.Source }):
		default:
			names[m.Target] = true
			f.mounts = append(f.mounts, m)
		}
	}
	slices.SortFunc(f.mounts, func(a, b sandbox.Mount) int { return cmp.Compare(a.Target, b.Target) })
	f.notes = refused[:min(len(refused), maxRootNotes)]
	if n := len(refused) - len(f.notes); n > 0 {
		f.notes = append(f.notes, fmt.Sprintf("roots left out for such reasons: %d more", n))
	}
	if more > 0 {
		f.notes = append(f.notes, fmt.Sprintf("roots left out: the client has %d more than the %d that a sandbox sees", more, maxRoots))
	}
	return f
}

// rootFolder returns one root as a folder. Its place is not in names.
func (c *Config) rootFolder(root *mcp.Root, names map[string]bool) (sandbox.Mount, error) {
	source, err := rootPath(root.URI, runtime.GOOS == "windows")
	if err != nil {
		return sandbox.Mount{}, fmt.Errorf("%q: %w", root.URI, err)
	}
	name := rootName(cmp.Or(root.Name, filepath.Base(source)))
	place := path.Join(rootsPlace, name)
	for n := 2; names[place]; n++ {
		place = path.Join(rootsPlace, fmt.Sprintf("%s-%d", name, n))
	}
	m, err := c.Root(sandbox.Mount{Source: source, Target: place, Mode: sandbox.ReadOnly})
	if err == nil && (m.Target != place || m.Mode != sandbox.ReadOnly) {
		err = errors.New("it is not at its place, read-only")
	}
	return m, err
}

// rootPath returns the path that a root's URI names.
func rootPath(uri string, windows bool) (string, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return "", errors.New("its URI is invalid")
	case u.Scheme != "file":
		return "", errors.New("only file:// URIs are folders of this computer")
	case u.Host != "" && u.Host != "localhost" || u.User != nil:
		return "", errors.New("it is a folder of another computer")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(uri, "#"):
		return "", errors.New("its URI has a ? or # that is not percent-encoded")
	case !strings.HasPrefix(u.Path, "/"):
		return "", errors.New("its path is not absolute")
	}
	p := u.Path
	if !windows {
		return path.Clean(p), nil
	}
	p = strings.ReplaceAll(strings.TrimPrefix(p, "/"), "/", `\`)
	if len(p) < 3 || !(p[0]|0x20 >= 'a' && p[0]|0x20 <= 'z') || p[1] != ':' || p[2] != '\\' {
		return "", errors.New("its path has no drive")
	}
	return strings.ToUpper(p[:1]) + p[1:], nil
}

// rootName makes a name for a place in the sandbox of what a client or a user wrote.
func rootName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r) {
			r = '-'
		}
		if b.Len()+len(string(r)) > maxRootName {
			break
		}
		b.WriteRune(r)
	}
	return cmp.Or(strings.Trim(b.String(), ".-"), "root")
}

// shortened bounds what a client wrote for a message.
func shortened(s string) string {
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return invisible.Line(s)
}

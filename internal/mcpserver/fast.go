package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// statelessVersion is the one stateless revision that the fast path knows, as
// it appears in a request.
const statelessVersion = `"2026-07-28"`

// fastCall is a call of run_python in the one form that the fast path takes.
// Everything else goes to the SDK: this is a shortcut, not a second
// implementation of the protocol.
type fastCall struct {
	rawID     json.RawMessage
	id        sdkrpc.ID
	arguments json.RawMessage
	token     json.RawMessage // progressToken; nil: none
	modern    string          // see modernKey; empty: use the session's revision
	trace     tracecontext.Context
	tasks     bool // the client declares the Tasks extension
}

// parseFast cuts a line into a fastCall. The parts alias the line.
func parseFast(line []byte) (fastCall, bool) {
	var call fastCall
	var params, version, method json.RawMessage
	ok := true
	// The walk never stops early: only at its end is the line known to be valid.
	err := jsonscan.Members(line, func(key string, value json.RawMessage) bool {
		switch key {
		case "jsonrpc":
			once(&version, value, &ok)
		case "id":
			once(&call.rawID, value, &ok)
		case "method":
			once(&method, value, &ok)
		case "params":
			once(&params, value, &ok)
		default:
			ok = false
		}
		return true
	})
	if err != nil || !ok || string(version) != `"2.0"` || string(method) != `"tools/call"` {
		return call, false
	}
	if call.id, ok = requestID(call.rawID); !ok {
		return call, false
	}
	var name, meta json.RawMessage
	err = jsonscan.Members(params, func(key string, value json.RawMessage) bool {
		switch key {
		case "name":
			once(&name, value, &ok)
		case "arguments":
			once(&call.arguments, value, &ok)
		case "_meta":
			once(&meta, value, &ok)
		default:
			ok = false
		}
		return true
	})
	if err != nil || !ok || string(name) != `"`+toolName+`"` {
		return call, false
	}
	if meta == nil {
		return call, true
	}
	m, ok := parseMeta(meta)
	call.token, call.modern, call.tasks, call.trace = m.token, m.key(), m.declaresTasks(), m.trace()
	return call, ok
}

// once sets *dst. A member that occurs twice is not ok.
func once(dst *json.RawMessage, value json.RawMessage, ok *bool) {
	if *dst != nil {
		*ok = false
	}
	*dst = value
}

// requestMeta is the part of a request's _meta that matters here.
type requestMeta struct {
	token, version, client, capabilities json.RawMessage

	parent, state json.RawMessage // of the trace
}

// parseMeta reads a request's _meta.
func parseMeta(raw json.RawMessage) (requestMeta, bool) {
	var m requestMeta
	ok := true
	err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "progressToken":
			once(&m.token, value, &ok)
			if kind := jsonscan.Kind(value); kind != '"' && kind != '-' && (kind < '0' || kind > '9') {
				ok = false
			}
		case "traceparent":
			once(&m.parent, value, &ok)
		case "tracestate":
			once(&m.state, value, &ok)
		case mcp.MetaKeyProtocolVersion:
			once(&m.version, value, &ok)
			if string(value) != statelessVersion {
				ok = false
			}
		case mcp.MetaKeyClientInfo:
			once(&m.client, value, &ok)
		case mcp.MetaKeyClientCapabilities:
			once(&m.capabilities, value, &ok)
		}
		return true
	})
	return m, ok && err == nil
}

// key identifies what a request of a stateless revision says about its client.
// The SDK validates it once; a request with the very same bytes needs no second
// validation. It is empty for a request of an older revision.
func (m requestMeta) key() string {
	if m.version == nil {
		return ""
	}
	return string(m.version) + "\n" + string(m.client) + "\n" + string(m.capabilities)
}

// declares decodes the client's capabilities into v, if the request has them and the
// name of one occurs in them: most have none, and are not decoded. It reports whether
// it has.
func (m requestMeta) declares(name string, v any) bool {
	return m.version != nil && bytes.Contains(m.capabilities, []byte(name)) && json.Unmarshal(m.capabilities, v) == nil
}

// trace returns the span of the client that the request belongs to.
func (m requestMeta) trace() tracecontext.Context {
	var parent, state string
	if m.parent == nil || json.Unmarshal(m.parent, &parent) != nil || m.state != nil && json.Unmarshal(m.state, &state) != nil {
		return tracecontext.Context{}
	}
	return tracecontext.Parse(parent, state)
}

// clientOf returns the client's name in a key.
func clientOf(key string) string {
	var client mcp.Implementation
	if parts := strings.Split(key, "\n"); len(parts) == 3 {
		_ = json.Unmarshal([]byte(parts[1]), &client) // no name where it is not valid
	}
	return label(client.Name)
}

// initializedBy returns the client's name in the parameters of initialize.
func initializedBy(params json.RawMessage) string {
	var p struct {
		ClientInfo mcp.Implementation `json:"clientInfo"`
	}
	_ = json.Unmarshal(params, &p) // no name where it is not valid
	return label(p.ClientInfo.Name)
}

// label bounds the client's name for itself.
func label(name string) string {
	const most = 100
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return name
}

// modernKey returns the key of a request's params.
func modernKey(params json.RawMessage) string {
	var meta json.RawMessage
	_ = jsonscan.Members(params, func(key string, value json.RawMessage) bool {
		if key == "_meta" {
			meta = value
		}
		return true
	})
	if meta == nil {
		return ""
	}
	m, ok := parseMeta(meta)
	if !ok {
		return ""
	}
	return m.key()
}

// startFast runs a call on the fast path, unless the SDK has not accepted its
// client yet.
func (c *conn) startFast(call fastCall) bool {
	ctx, cancel := context.WithCancelCause(c.stop)
	entry := &request{cancel: cancel, awaited: true, raw: call.rawID}
	c.mu.Lock()
	accepted := call.modern != "" && call.modern == c.modern || call.modern == "" && c.protocol != ""
	finishing, client, takes := c.finishing, c.client, c.modernTakes
	if accepted && !finishing {
		c.fast.Add(1)
	}
	c.mu.Unlock()
	if !accepted || finishing {
		cancel(nil)
		return finishing // if so, there is no one left to answer
	}
	if err := c.register(call.id, entry); err != nil {
		c.fast.Done()
		cancel(nil)
		c.writeError(call.rawID, err.Code, err.Message)
		return true
	}
	stateless := call.modern != ""
	if !stateless {
		takes = c.takesInSession()
	}
	if stateless && takes.Roots && c.wantsRoots(call.arguments) {
		go func() {
			defer c.fast.Done()
			defer cancel(nil)
			if data, err := appendResponse(call.rawID, c.asksOnWire(rootsInput, rootsKey)); err == nil {
				_ = c.answer(call.id, data) // write has recorded a failure
			}
		}()
		return true
	}
	var beat *heartbeat
	if call.token != nil {
		beat = startHeartbeat(func(seconds float64, message string) { c.progress(call.token, seconds, message) })
	}
	principal := authz.Local(client)
	principal.Trace, principal.Takes = call.trace, takes
	if call.tasks && c.server.config.Tasks != nil && c.server.config.Tasks.Room(c.server.owner(client)) {
		work := c.work(principal, call.arguments, beat, func(r *broker.Result) any {
			text, structured := c.answerOf(client, r)
			return c.wireResult(text, structured, r)
		})
		go func() {
			defer c.fast.Done()
			defer cancel(nil)
			defer c.guard(call.id)
			c.answerWork(ctx, call, client, work)
		}()
		return true
	}
	if asksHow(takes, stateless) == asksByResult {
		beat = orSilent(beat)
	}
	x := c.submit(principal, call.arguments, beat, false)
	go func() {
		defer c.fast.Done()
		defer cancel(nil)
		defer c.guard(call.id)
		r, asks := c.perform(ctx, x, stateless)
		if asks != nil {
			beat.stop()
			if data, err := appendResponse(call.rawID, c.asksOnWire(asks.input, asks.state)); err == nil {
				_ = c.answer(call.id, data)
			}
			return
		}
		text, structured := c.answerOf(client, r)
		defer c.unread.add(max(len(text), structured.Size()))()
		if beat != nil {
			beat.stop()
		}
		defer c.unread.enter(c.stop)()
		answer := c.wireResult(text, structured, r)
		if stateless {
			answer.Meta, answer.ResultType = c.server.resultMeta, "complete"
		}
		data, err := appendResponse(call.rawID, answer)
		if err != nil { // cannot happen: see toolResult
			c.log.Error("an answer could not be encoded", "error", err)
		}
		_ = c.answer(call.id, data) // write has recorded a failure
	}()
	return true
}

// appendResponse encodes an answer.
func appendResponse(id json.RawMessage, result any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	b.Write(id)
	b.WriteString(`,"result":`)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(result); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - 1) // Encode ends with a line feed
	b.WriteByte('}')
	return b.Bytes(), nil
}

// progress sends notifications/progress.
func (c *conn) progress(token json.RawMessage, seconds float64, message string) {
	type params struct {
		Message  string          `json:"message,omitempty"`
		Progress float64         `json:"progress"`
		Token    json.RawMessage `json:"progressToken"`
	}
	data, err := marshal(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  params `json:"params"`
	}{"2.0", "notifications/progress", params{message, seconds, token}})
	if err == nil {
		_ = c.write(data)
	}
}

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/tracecontext"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Revisions of the protocol.
const (
	newestHandshake = "2025-11-25"
	stateless       = "2026-07-28"
)

// handshakeVersions are the versions that may answer initialize.
var handshakeVersions = []string{newestHandshake, "2025-06-18", "2025-03-26", "2024-11-05"}

// probeTimeout bounds server/discover, which takes no work: a server that does
// not answer it does not know it.
const probeTimeout = 5 * time.Second

// era says how to speak to a server.
type era int

const (
	eraUnknown era = iota
	eraHandshake
	eraStateless
	// eraEvents is the handshake, over HTTP with server-sent events.
	eraEvents
)

// Implementation identifies a program, as in the protocol.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// introduction is what a server hears about us.
type introduction struct {
	Implementation
	may inquiry.Takes // what it may ask, in the first era
}

// session is what was agreed with a server. It is immutable.
type session struct {
	era          era
	version      string
	server       Implementation
	instructions string
	hasTools     bool          // it declares tools
	listChanged  bool          // it announces changes of its tools
	announces    bool          // it announces changes of anything
	logs         bool          // it sends log messages
	may          inquiry.Takes // what it may ask, in the second era
	meta         json.RawMessage
}

// errFreshProcess means that the server refused initialize and ended, so that
// server/discover needs another process.
var errFreshProcess = errors.New("the server refused initialize and ended")

type serverCapabilities struct {
	Tools, Resources, Prompts *struct {
		ListChanged bool `json:"listChanged"`
	}
	Logging *struct{}
}

// negotiate agrees on a session. patience bounds initialize, which may have to
// wait for a package to be downloaded.
func negotiate(ctx context.Context, conn transport, client introduction, known era, patience time.Duration) (*session, error) {
	if known == eraStateless {
		s, err := discover(ctx, conn, client, patience)
		var answered *jsonrpc.Error
		if err == nil || !errors.As(err, &answered) {
			return s, err
		}
		// A different version of the server spoke like that.
	}
	s, err := initialize(ctx, conn, client, patience)
	if err == nil {
		return s, nil
	}
	var answered *jsonrpc.Error
	silent := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	switch {
	case errors.As(err, &answered), errors.Is(err, errSpeaksStateless), silent:
	default:
		return nil, err
	}
	select {
	case <-conn.Done():
		return nil, fmt.Errorf("%w: %w", errFreshProcess, err)
	default:
	}
	s, probeErr := discover(ctx, conn, client, probeTimeout)
	if probeErr == nil {
		return s, nil
	}
	if errors.Is(probeErr, jsonrpc.ErrClosed) && !silent {
		return nil, fmt.Errorf("%w: %w", errFreshProcess, err)
	}
	return nil, err // the error of initialize is the helpful one
}

// errSpeaksStateless means that the answer to initialize names a version
// without initialize.
var errSpeaksStateless = errors.New("the server speaks a newer version of the protocol")

// initialize shakes hands. A server that refuses what it is offered is offered nothing
// in a second attempt: those with an old Java SDK do not know the modes of elicitation.
func initialize(ctx context.Context, conn transport, client introduction, patience time.Duration) (*session, error) {
	s, err := shakeHands(ctx, conn, client, patience)
	if client.may == (inquiry.Takes{}) || !refusesOffer(err) {
		return s, err
	}
	select {
	case <-conn.Done():
		return s, err
	default:
	}
	client.may = inquiry.Takes{}
	if second, secondErr := shakeHands(ctx, conn, client, patience); secondErr == nil {
		return second, nil
	}
	return s, err
}

// refusesOffer reports whether a server may have refused initialize for what we offer.
// One that does not know initialize, or our version, has not.
func refusesOffer(err error) bool {
	var answered *jsonrpc.Error
	if errors.As(err, &answered) {
		return answered.Code != jsonrpc.CodeMethodNotFound && answered.Code != codeUnsupportedVersion
	}
	var status *remote.StatusError
	return errors.As(err, &status) && status.Status == http.StatusBadRequest
}

func shakeHands(ctx context.Context, conn transport, client introduction, patience time.Duration) (*session, error) {
	params, err := json.Marshal(map[string]any{
		"protocolVersion": newestHandshake,
		"capabilities":    client.may.Capabilities(),
		"clientInfo":      client.Implementation,
	})
	if err != nil {
		return nil, err
	}
	callCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	raw, err := conn.Call(callCtx, "initialize", params)
	if err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	var result struct {
		ProtocolVersion string             `json:"protocolVersion"`
		Capabilities    serverCapabilities `json:"capabilities"`
		ServerInfo      Implementation     `json:"serverInfo"`
		Instructions    string             `json:"instructions"`
	}
	if err := decodeSession(raw, &result); err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	switch {
	case slices.Contains(handshakeVersions, result.ProtocolVersion):
	case result.ProtocolVersion >= stateless:
		return nil, fmt.Errorf("initialize: %w: %.40q", errSpeaksStateless, result.ProtocolVersion)
	default:
		return nil, fmt.Errorf("initialize: %w", &unusable{fmt.Sprintf("protocol version %.40q is not supported", result.ProtocolVersion), raw})
	}
	conn.Speaks(result.ProtocolVersion)
	if err := conn.Notify(ctx, "notifications/initialized", nil); err != nil {
		return nil, fmt.Errorf("initialize: %w", err)
	}
	s := &session{era: eraHandshake, version: result.ProtocolVersion, server: result.ServerInfo, instructions: result.Instructions}
	s.takeCapabilities(result.Capabilities)
	return s, nil
}

// unusable is an ErrBadAnswer with the answer, which explain shows.
type unusable struct {
	why string
	raw json.RawMessage
}

func (e *unusable) Error() string { return ErrBadAnswer.Error() + ": " + e.why }
func (*unusable) Unwrap() error   { return ErrBadAnswer }

// decodeSession decodes what a server says about itself. A member of an unexpected
// type is ignored, because most are only for people, or [] where {} was meant.
func decodeSession(raw json.RawMessage, into any) error {
	var mistyped *json.UnmarshalTypeError
	if err := json.Unmarshal(raw, into); err != nil && !errors.As(err, &mistyped) || jsonscan.Kind(raw) != '{' {
		return &unusable{"the result is not an object", raw}
	}
	return nil
}

func discover(ctx context.Context, conn transport, client introduction, patience time.Duration) (*session, error) {
	meta, err := json.Marshal(map[string]any{
		"io.modelcontextprotocol/protocolVersion": stateless,
		"io.modelcontextprotocol/clientInfo":      client.Implementation,
	})
	if err != nil {
		return nil, err
	}
	s := &session{era: eraStateless, version: stateless, meta: meta, may: client.may}
	callCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn.Speaks(stateless)
	raw, err := conn.Call(callCtx, "server/discover", s.params(nil))
	if err != nil {
		return nil, fmt.Errorf("server/discover: %w", err)
	}
	const infoKey = "io.modelcontextprotocol/serverInfo"
	var result struct {
		SupportedVersions []string                   `json:"supportedVersions"`
		Capabilities      serverCapabilities         `json:"capabilities"`
		ServerInfo        Implementation             `json:"serverInfo"`
		Instructions      string                     `json:"instructions"`
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
	if err := decodeSession(raw, &result); err != nil {
		return nil, fmt.Errorf("server/discover: %w", err)
	}
	if !slices.Contains(result.SupportedVersions, stateless) {
		return nil, fmt.Errorf("server/discover: %w: it supports the protocol versions %.200q, not %s", ErrBadAnswer, result.SupportedVersions, stateless)
	}
	s.server, s.instructions = result.ServerInfo, result.Instructions
	if info := result.Meta[infoKey]; info != nil {
		_ = json.Unmarshal(info, &s.server) // the name is only for people
	}
	s.takeCapabilities(result.Capabilities)
	return s, nil
}

func (s *session) takeCapabilities(c serverCapabilities) {
	s.hasTools, s.logs = c.Tools != nil, c.Logging != nil
	s.listChanged = c.Tools != nil && c.Tools.ListChanged
	s.announces = s.listChanged || c.Resources != nil && c.Resources.ListChanged || c.Prompts != nil && c.Prompts.ListChanged
}

// params makes a request's parameters from JSON members without their braces.
func (s *session) params(members []byte) json.RawMessage {
	return s.paramsWith(members, aside{takes: s.may})
}

// aside is what a request has in _meta for the call that it belongs to.
type aside struct {
	token int64                // for progress; 0: none
	span  tracecontext.Context // if it is valid
	// For the second era, which asks with every request:
	takes inquiry.Takes
	logs  bool
}

// paramsWith is params with what a call has aside.
func (s *session) paramsWith(members []byte, a aside) json.RawMessage {
	var meta []byte // members, too
	if s.meta != nil {
		meta = s.meta[1 : len(s.meta)-1 : len(s.meta)-1]
	}
	add := func(name, value string) {
		if len(meta) > 0 {
			meta = append(meta, ',')
		}
		meta = append(append(append(meta, '"'), name...), `":`...)
		meta = append(meta, value...)
	}
	if s.meta != nil {
		add("io.modelcontextprotocol/clientCapabilities", string(a.takes.Capabilities()))
		if a.logs {
			add("io.modelcontextprotocol/logLevel", `"info"`)
		}
	}
	if a.span.Valid() {
		add("traceparent", `"`+a.span.TraceParent()+`"`)
		if state, err := json.Marshal(a.span.State); err == nil && a.span.State != "" {
			add("tracestate", string(state))
		}
	}
	if a.token != 0 {
		add("progressToken", strconv.FormatInt(a.token, 10))
	}
	out := make([]byte, 0, len(members)+len(meta)+16)
	out = append(out, '{')
	if len(meta) > 0 {
		out = append(append(append(out, `"_meta":{`...), meta...), '}')
	}
	if len(out) > 1 && len(members) > 0 {
		out = append(out, ',')
	}
	out = append(out, members...)
	return append(out, '}')
}

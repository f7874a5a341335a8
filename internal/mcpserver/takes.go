package mcpserver

//lint:file-ignore SA1019 clients still have roots and sampling, in all revisions

import (
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
)

// takesOf returns what a client can be asked that declares these capabilities.
func takesOf(elicitation *mcp.ElicitationCapabilities, sampling, roots bool) inquiry.Takes {
	t := inquiry.Takes{Sampling: sampling, Roots: roots}
	if elicitation != nil {
		t.URLs = elicitation.URL != nil
		t.Forms = elicitation.Form != nil || !t.URLs
	}
	return t
}

func takesOfSDK(c *mcp.ClientCapabilities) inquiry.Takes {
	if c == nil {
		return inquiry.Takes{}
	}
	return takesOf(c.Elicitation, c.Sampling != nil, c.RootsV2 != nil)
}

// takesInKey is takesOf for a key: see modernKey.
func takesInKey(key string) inquiry.Takes {
	var c struct {
		Elicitation *mcp.ElicitationCapabilities `json:"elicitation"`
		Sampling    *struct{}                    `json:"sampling"`
		Roots       *struct{}                    `json:"roots"`
	}
	if parts := strings.Split(key, "\n"); len(parts) != 3 || json.Unmarshal([]byte(parts[2]), &c) != nil {
		return inquiry.Takes{}
	}
	return takesOf(c.Elicitation, c.Sampling != nil, c.Roots != nil)
}

// takesInSession returns what the client of a session with a handshake can be asked.
func (c *conn) takesInSession() inquiry.Takes {
	if c.sdk == nil {
		return inquiry.Takes{}
	}
	p := c.sdk.InitializeParams()
	if p == nil {
		return inquiry.Takes{}
	}
	return takesOfSDK(p.Capabilities)
}

// takes returns what the client of a request can be asked that the SDK handles, and
// reports whether the request is one of the stateless revisions.
func (c *conn) takes(req *mcp.CallToolRequest) (takes inquiry.Takes, stateless bool) {
	version, _ := req.Params.Meta[mcp.MetaKeyProtocolVersion].(string)
	if version < tasks.Since {
		return c.takesInSession(), false
	}
	return takesOfSDK(req.ClientCapabilities()), true
}

// How the user of a client can be asked. Clients of the stateless revisions are
// asked by the result of a call, which they then repeat with the answer; others by
// a request.
type asks int

const (
	asksNothing asks = iota
	asksByRequest
	asksByResult
)

// asksHow returns how a client is asked what it takes.
func asksHow(takes inquiry.Takes, stateless bool) asks {
	switch {
	case !takes.Any():
		return asksNothing
	case stateless:
		return asksByResult
	}
	return asksByRequest
}

// fits reports whether a question can be put to a client that takes so much.
func fits(takes inquiry.Takes, q *approval.Question) bool {
	if q.Asks == nil {
		return takes.Forms
	}
	return takes.Of(q.Asks)
}

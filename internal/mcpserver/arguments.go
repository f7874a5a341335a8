package mcpserver

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"sallyport/internal/broker"
	"sallyport/internal/upstream/jsonrpc"
)

// parseArguments reads the arguments of run_python. The second result is the
// answer where they have the wrong form. Both ways into the tool, the SDK's
// and our own, use it, so that they cannot differ.
func parseArguments(raw json.RawMessage) (broker.Request, *broker.Result) {
	var req broker.Request
	if len(raw) == 0 || jsonrpc.Kind(raw) == 'n' {
		return req, nil
	}
	if jsonrpc.Kind(raw) != '{' {
		return req, broker.Invalid("'arguments' must be an object")
	}
	var invalid *broker.Result
	err := jsonrpc.Members(raw, func(key string, value json.RawMessage) bool {
		null := jsonrpc.Kind(value) == 'n'
		switch key {
		case "code":
			req.Code = ""
			if jsonrpc.Kind(value) == '"' && json.Unmarshal(value, &req.Code) != nil {
				invalid = broker.Invalid("Missing 'code' argument")
			}
		case "servers":
			req.Servers = nil
			if null {
				break
			}
			if jsonrpc.Kind(value) != '[' {
				invalid = broker.Invalid("'servers' must be a list")
				break
			}
			_ = jsonrpc.Elements(value, func(item json.RawMessage) bool {
				req.Servers = append(req.Servers, text(item))
				return true
			})
		case "session":
			req.Session = ""
			if null {
				break
			}
			if jsonrpc.Kind(value) != '"' || json.Unmarshal(value, &req.Session) != nil {
				invalid = broker.Invalid("'session' must be a string")
			}
		case "backend":
			req.Backend = ""
			if null {
				break
			}
			if jsonrpc.Kind(value) != '"' || json.Unmarshal(value, &req.Backend) != nil {
				invalid = broker.Invalid("'backend' must be a string")
			}
		case "timeout":
			req.Timeout = 0
			if null {
				break
			}
			seconds, err := strconv.ParseFloat(string(value), 64)
			if err != nil || seconds != math.Trunc(seconds) {
				invalid = broker.Invalid("'timeout' must be an integer")
				break
			}
			// The broker moves what is out of bounds to their ends; 0 would
			// mean the default to it.
			const most = float64(7 * 24 * time.Hour / time.Second)
			req.Timeout = time.Duration(min(max(seconds, 1), most)) * time.Second
		}
		return invalid == nil
	})
	if err != nil {
		return req, broker.Invalid("'arguments' must be an object")
	}
	return req, invalid
}

// text is a JSON string's value, or what else stands there as it is written:
// a server's name that is not a string is then unknown by that name.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

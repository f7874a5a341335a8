package mcpserver

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// parseArguments parses the arguments of run_python. If they are malformed, the
// second result is the answer. The third result is hints for the answer, whatever
// it is. Both ways to the tool, the SDK's and our own, use it, so that they cannot
// differ.
func parseArguments(raw json.RawMessage) (broker.Request, *broker.Result, []string) {
	var req broker.Request
	var hints []string
	if len(raw) == 0 || jsonscan.Kind(raw) == 'n' {
		return req, nil, nil
	}
	if jsonscan.Kind(raw) != '{' {
		return req, broker.Invalid("'arguments' must be an object"), nil
	}
	var invalid *broker.Result
	err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		null := jsonscan.Kind(value) == 'n'
		switch key {
		case "code":
			req.Code = ""
			if jsonscan.Kind(value) == '"' && json.Unmarshal(value, &req.Code) != nil {
				invalid = broker.Invalid("Missing 'code' argument")
			}
		case "servers":
			req.Servers = nil
			if null {
				break
			}
			if jsonscan.Kind(value) != '[' {
				invalid = wrongType(key, "'servers' must be a list", value)
				break
			}
			_ = jsonscan.Elements(value, func(item json.RawMessage) bool {
				req.Servers = append(req.Servers, text(item))
				return true
			})
		case "session":
			req.Session = ""
			if null {
				break
			}
			if jsonscan.Kind(value) != '"' || json.Unmarshal(value, &req.Session) != nil {
				invalid = broker.Invalid("'session' must be a string")
			}
		case "backend":
			req.Backend = ""
			if null {
				break
			}
			if jsonscan.Kind(value) != '"' || json.Unmarshal(value, &req.Backend) != nil {
				invalid = broker.Invalid("'backend' must be a string")
			}
		case "env":
			req.Env = ""
			if null {
				break
			}
			if jsonscan.Kind(value) != '"' || json.Unmarshal(value, &req.Env) != nil {
				invalid = broker.Invalid("'env' must be a string")
			}
		case "timeout":
			req.Timeout = 0
			if null {
				break
			}
			seconds, err := strconv.ParseFloat(string(value), 64)
			if err != nil || seconds != math.Trunc(seconds) {
				invalid = wrongType(key, "'timeout' must be an integer", value)
				break
			}
			// The broker clamps values that are out of bounds; 0 would mean the default
			// there.
			const most = float64(7 * 24 * time.Hour / time.Second)
			req.Timeout = time.Duration(min(max(seconds, 1), most)) * time.Second
		default:
			if len(hints) < maxArgumentHints {
				hints = append(hints, unknownArgument(key))
			}
		}
		return invalid == nil
	})
	if err != nil {
		return req, broker.Invalid("'arguments' must be an object"), nil
	}
	return req, invalid, hints
}

// text returns the value of a JSON string, or anything else as it is written: a
// server's name that is not a string is then an unknown name.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

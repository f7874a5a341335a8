package bridge

import (
	"encoding/json"
	"errors"
	"strings"
	"syscall"

	"sallyport/internal/memory"
	"sallyport/internal/state"
	"sallyport/internal/usertools"
	"sallyport/internal/wire"
)

// Memory keeps values under keys for all sessions of a user. Errors wrap those
// of package memory, or are the file system's. Methods are safe for concurrent
// use. [memory.Store] has them.
type Memory interface {
	// Get returns memory.ErrMissing for a key under which nothing is kept.
	Get(key string) (memory.Entry, error)
	// Put replaces value and metadata.
	Put(key string, value, metadata json.RawMessage) (version string, err error)
	// Swap replaces the value of that version alone, or returns
	// memory.ErrConflict. An empty version: nothing is kept there.
	Swap(key string, value json.RawMessage, version string) (string, error)
	// Delete says whether there was something to delete.
	Delete(key string) (bool, error)
	// List is sorted by key.
	List() ([]memory.Item, error)
}

// memoryParams are the parameters of all methods.
type memoryParams struct {
	Key      string          `json:"key"`
	Info     bool            `json:"info"`
	Value    json.RawMessage `json:"value"`
	Metadata json.RawMessage `json:"metadata"`
	Version  *string         `json:"version"`
}

// memoryCall answers the methods of the code's memory. Every execution has it:
// what is kept there came from a sandbox.
func (x *Execution) memoryCall(call wire.Call) (json.RawMessage, error) {
	kept := x.bridge.config.Memory
	if kept == nil {
		return nil, &wire.CallError{Kind: wire.KindDenied, Message: "memory is switched off here (setting memories.enabled)"}
	}
	var p memoryParams
	if err := json.Unmarshal(call.Params, &p); err != nil {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'key' and 'version' must be strings, 'info' must be a boolean"}
	}
	result, err := memoryAnswer(kept, call.Method, &p)
	if err != nil {
		return nil, keepError(err)
	}
	return result, nil
}

func memoryAnswer(kept Memory, method string, p *memoryParams) (json.RawMessage, error) {
	switch method {
	case wire.MethodMemoryGet:
		e, err := kept.Get(p.Key)
		if errors.Is(err, memory.ErrMissing) {
			return json.RawMessage("null"), nil
		}
		if err != nil {
			return nil, err
		}
		return entryAnswer(&e, p.Info)
	case wire.MethodMemoryPut:
		var err error
		if p.Version != nil {
			_, err = kept.Swap(p.Key, p.Value, *p.Version)
		} else {
			_, err = kept.Put(p.Key, p.Value, p.Metadata)
		}
		if errors.Is(err, memory.ErrConflict) {
			return json.RawMessage("false"), nil
		}
		return json.RawMessage("true"), err
	case wire.MethodMemoryDelete:
		was, err := kept.Delete(p.Key)
		if err != nil {
			return nil, err
		}
		return json.Marshal(was)
	default:
		items, err := kept.List()
		if err != nil {
			return nil, err
		}
		return json.Marshal(items)
	}
}

// entryAnswer is an entry as the code gets it. The value's bytes are the
// file's.
func entryAnswer(e *memory.Entry, info bool) (json.RawMessage, error) {
	out, err := json.Marshal(struct {
		Key       string          `json:"key"`
		Metadata  json.RawMessage `json:"metadata"`
		CreatedAt string          `json:"created_at"`
		UpdatedAt string          `json:"updated_at"`
		Version   string          `json:"version"`
	}{e.Key, e.Metadata, e.CreatedAt, e.UpdatedAt, e.Version})
	if err != nil || info {
		return out, err
	}
	out = append(out[:len(out)-1], `,"value":`...)
	return append(append(out, e.Value...), '}'), nil
}

// keepError is the failure of reading or writing what is kept, as the code may
// see it: it names no place on the host.
func keepError(err error) *wire.CallError {
	kind := wire.KindInternal
	switch {
	case errors.Is(err, memory.ErrKey), errors.Is(err, memory.ErrInvalid), errors.Is(err, usertools.ErrInvalid):
		kind = wire.KindInvalid
	case errors.Is(err, memory.ErrLimit), errors.Is(err, usertools.ErrLimit):
		kind = wire.KindLimit
	case errors.Is(err, state.ErrNoPlace):
		kind = wire.KindUnavailable
	case errors.Is(err, memory.ErrBroken), errors.Is(err, usertools.ErrBroken):
	default:
		reason := "it cannot be read or written"
		var errno syscall.Errno
		if errors.As(err, &errno) {
			reason += ": " + errno.Error()
		}
		return &wire.CallError{Kind: kind, Message: reason}
	}
	const maxMessage = 1 << 10
	return &wire.CallError{Kind: kind, Message: clip(strings.ToValidUTF8(err.Error(), "\uFFFD"), maxMessage)}
}

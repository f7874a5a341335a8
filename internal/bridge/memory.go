package bridge

import (
	"encoding/json"
	"errors"
	"strings"
	"syscall"

	"github.com/sallyport/sallyport/internal/memory"
	"github.com/sallyport/sallyport/internal/savedtools"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/store/keyed"
	"github.com/sallyport/sallyport/internal/wire"
)

// Memory keeps values under keys for all sessions of an owner. Errors wrap
// those of packages memory and keyed, or are the file system's. Methods are safe
// for concurrent use. [memory.Store] implements it.
type Memory interface {
	// Get returns keyed.ErrMissing for a key without a value.
	Get(key string) (memory.Entry, error)
	// Put replaces value and metadata.
	Put(key string, value, metadata json.RawMessage) (version string, err error)
	// Swap replaces the value only if it has that version, and returns
	// keyed.ErrConflict otherwise. An empty version means that there is no value.
	Swap(key string, value json.RawMessage, version string) (string, error)
	// Delete returns keyed.ErrMissing for a key without a value.
	Delete(key string) error
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
	kept := x.bridge.config.Stores.Memory(x.principal.Owner)
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
		if errors.Is(err, keyed.ErrMissing) {
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
		if errors.Is(err, keyed.ErrConflict) {
			return json.RawMessage("false"), nil
		}
		return json.RawMessage("true"), err
	case wire.MethodMemoryDelete:
		err := kept.Delete(p.Key)
		if errors.Is(err, keyed.ErrMissing) {
			return json.RawMessage("false"), nil
		}
		return json.RawMessage("true"), err
	default:
		items, err := kept.List()
		if err != nil {
			return nil, err
		}
		return json.Marshal(items)
	}
}

// entryAnswer returns an entry as code gets it. The value's bytes are the
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

// keepError returns the error for code if reading or writing failed: it names
// no path on the host.
func keepError(err error) *wire.CallError {
	kind := wire.KindInternal
	switch {
	case errors.Is(err, memory.ErrKey), errors.Is(err, memory.ErrInvalid), errors.Is(err, savedtools.ErrInvalid):
		kind = wire.KindInvalid
	case errors.Is(err, keyed.ErrLimit):
		kind = wire.KindLimit
	case errors.Is(err, store.ErrNoPlace):
		kind = wire.KindUnavailable
	case errors.Is(err, keyed.ErrBroken):
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

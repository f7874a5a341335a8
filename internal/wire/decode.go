package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// FromGuest is a decoded control frame from the guest: exactly one field is
// set.
type FromGuest struct {
	Ready  *Ready
	Call   *Call
	Behind *Behind
	Cancel *Cancel
	Done   *Done
}

// Bounds of what a guest may put into a frame's members.
const (
	maxMethod    = 64
	maxRuntime   = 64
	maxArtifacts = 1000
	maxPath      = 4096
	maxAbout     = 1024
	maxException = 4096
	maxRunning   = 100
	maxJob       = 1024
	maxBehind    = 1_000_000_000
)

// DecodeFromGuest decodes the body of a control frame from the guest. What it
// returns does not share memory with b. Unknown members are ignored; an unknown
// type is an error.
func DecodeFromGuest(b []byte) (FromGuest, error) {
	call, err := decodeCall(b)
	if err != nil {
		return FromGuest{}, malformed(err)
	}
	if call != nil {
		return FromGuest{Call: call}, nil
	}
	var m struct {
		Type     string `json:"type"`
		ID       uint64 `json:"id"`
		Run      uint64 `json:"run"`
		Calls    int    `json:"calls"`
		Protocol int    `json:"protocol"`
		Runtime  string `json:"runtime"`

		Status             Status          `json:"status"`
		ExitCode           int             `json:"exitCode"`
		Artifacts          json.RawMessage `json:"artifacts"`
		ArtifactsTruncated bool            `json:"artifactsTruncated"`
		Background         Background      `json:"background"`
		Running            json.RawMessage `json:"running"`
		Error              *Exception      `json:"error"`
		Drained            bool            `json:"drained"`
		Stdout             string          `json:"stdout"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return FromGuest{}, malformed(err)
	}
	switch m.Type {
	case TypeReady:
		if len(m.Runtime) > maxRuntime {
			return FromGuest{}, fmt.Errorf("%w: a version of %d bytes", ErrFrame, len(m.Runtime))
		}
		return FromGuest{Ready: &Ready{Protocol: m.Protocol, Runtime: m.Runtime}}, nil
	case TypeBehind:
		if m.Calls < 0 || m.Calls > maxBehind {
			return FromGuest{}, fmt.Errorf("%w: %d calls wait", ErrFrame, m.Calls)
		}
		return FromGuest{Behind: &Behind{Run: m.Run, Calls: m.Calls}}, nil
	case TypeCancel:
		return FromGuest{Cancel: &Cancel{ID: m.ID}}, nil
	case TypeDone:
		d := &Done{
			ID: m.ID, Status: m.Status, ExitCode: m.ExitCode,
			ArtifactsTruncated: m.ArtifactsTruncated, Background: m.Background, Error: m.Error,
			Drained: m.Drained, Stdout: m.Stdout,
		}
		var err error
		if d.Artifacts, err = decodeList[Artifact](m.Artifacts, "artifacts", maxArtifacts); err != nil {
			return FromGuest{}, err
		}
		if d.Running, err = decodeList[string](m.Running, "running", maxRunning); err != nil {
			return FromGuest{}, err
		}
		if err := d.check(); err != nil {
			return FromGuest{}, err
		}
		return FromGuest{Done: d}, nil
	default:
		return FromGuest{}, fmt.Errorf("%w: type %.40q", ErrFrame, m.Type)
	}
}

// decodeCall decodes a frame that is a call, and returns nil for any other. It
// looks at each byte once, because a call's parameters may be large: a frame that
// it accepts is valid JSON, and so are the parameters.
func decodeCall(b []byte) (*Call, error) {
	var kind, id, run, method, params []byte
	_, err := jsonscan.RawMembers(b, func(key, value []byte) bool {
		switch string(key) {
		case `"type"`:
			kind = value
		case `"id"`:
			id = value
		case `"run"`:
			run = value
		case `"method"`:
			method = value
		case `"params"`:
			params = value
		}
		return true
	})
	if err != nil || string(kind) != `"`+TypeCall+`"` {
		return nil, err
	}
	c := &Call{Params: json.RawMessage("{}")}
	if c.ID, err = number(id); err != nil {
		return nil, err
	}
	if c.Run, err = number(run); err != nil {
		return nil, err
	}
	if len(method) > maxMethod+2 || jsonscan.Kind(method) != '"' {
		return nil, fmt.Errorf("a method of %d bytes", len(method))
	}
	var ok bool
	if c.Method, ok = jsonscan.Unquote(method); !ok || c.Method == "" {
		return nil, errors.New("no method")
	}
	if params != nil {
		c.Params = bytes.Clone(params)
	}
	return c, nil
}

// number decodes a number of ours; one that is missing is 0.
func number(raw []byte) (uint64, error) {
	if raw == nil {
		return 0, nil
	}
	return strconv.ParseUint(string(raw), 10, 64)
}

// callHead is how our own guest begins the frame of a call.
var callHead = lazyregexp.New(`^\{"type":"call","id":([0-9]{1,19}),`)

// CallID guesses which call a frame makes of which only the beginning is known.
func CallID(head []byte) (id uint64, ok bool) {
	m := callHead().FindSubmatch(head)
	if m == nil {
		return 0, false
	}
	id, err := strconv.ParseUint(string(m[1]), 10, 64)
	return id, err == nil
}

// malformed is the error for what is not the JSON that it should be. The cause's
// text may repeat what was sent, so it is cut.
func malformed(err error) error {
	return fmt.Errorf("%w: %.200s", ErrFrame, err.Error())
}

// decodeList decodes one by one: a frame has room for ten million empty ones,
// which would cost much more memory than the frame did.
func decodeList[T any](b json.RawMessage, what string, most int) ([]T, error) {
	if b == nil || string(b) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%w: %s must be an array", ErrFrame, what)
	}
	var list []T
	for dec.More() {
		if len(list) == most {
			return nil, fmt.Errorf("%w: more than %d %s", ErrFrame, most, what)
		}
		var one T
		if err := dec.Decode(&one); err != nil {
			return nil, malformed(err)
		}
		list = append(list, one)
	}
	return list, nil
}

func (d *Done) check() error {
	switch d.Status {
	case StatusOK, StatusError, StatusExit, StatusInterrupted:
	default:
		return fmt.Errorf("%w: status %.40q", ErrFrame, d.Status)
	}
	for _, a := range d.Artifacts {
		if len(a.Path) > maxPath || a.Size < 0 || len(a.About) > maxAbout {
			return fmt.Errorf("%w: an artifact of %d bytes with a path of %d and %d bytes about it", ErrFrame, a.Size, len(a.Path), len(a.About))
		}
	}
	for _, r := range d.Running {
		if len(r) > maxJob {
			return fmt.Errorf("%w: %d bytes about one thing that runs", ErrFrame, len(r))
		}
	}
	if e := d.Error; e != nil && len(e.Type)+len(e.Message) > maxException {
		return fmt.Errorf("%w: an exception of %d bytes", ErrFrame, len(e.Type)+len(e.Message))
	}
	if len(d.Stdout) > 0 && !d.Drained || len(d.Stdout) > MaxOutput {
		return fmt.Errorf("%w: %d bytes of output", ErrFrame, len(d.Stdout))
	}
	b := d.Background
	if b.Threads < 0 || b.Tasks < 0 || b.Children < 0 {
		return fmt.Errorf("%w: a negative count", ErrFrame)
	}
	return nil
}

// Exit is the payload of an output frame of [KindExit]: how the interpreter
// ended. Signal is zero when it exited by itself.
type Exit struct {
	Code   int `json:"code"`
	Signal int `json:"signal"`
}

// DecodeExit decodes the payload of an output frame of [KindExit].
func DecodeExit(b []byte) (Exit, error) {
	var e Exit
	if err := json.Unmarshal(b, &e); err != nil {
		return e, malformed(err)
	}
	if e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 64 {
		return e, fmt.Errorf("%w: exit code %d, signal %d", ErrFrame, e.Code, e.Signal)
	}
	return e, nil
}

// DecodeTaskFile decodes the params of [MethodTaskFile]. Nearly all of them is the data,
// of which encoding/json would look at each byte four times.
func DecodeTaskFile(params json.RawMessage) (f TaskFile, err error) {
	_, failed := jsonscan.RawMembers(params, func(key, value []byte) bool {
		switch string(key) {
		case `"path"`:
			err = json.Unmarshal(value, &f.Path)
		case `"mode"`:
			err = json.Unmarshal(value, &f.Mode)
		case `"directory"`:
			err = json.Unmarshal(value, &f.Directory)
		case `"data"`:
			f.Data, err = decodeData(value)
		case `"more"`:
			err = json.Unmarshal(value, &f.More)
		case `"leftOut"`:
			err = json.Unmarshal(value, &f.LeftOut)
		}
		return err == nil
	})
	if failed != nil || err != nil {
		return TaskFile{}, errors.New("the sandbox sent something that is not part of a file")
	}
	if f.More && len(f.Data) < MinTaskPart {
		return f, fmt.Errorf("the sandbox sent a file in parts of less than %d bytes", MinTaskPart)
	}
	return f, nil
}

// decodeData decodes a string of base64.
func decodeData(value []byte) (data []byte, err error) {
	if jsonscan.Kind(value) != '"' || bytes.IndexByte(value, '\\') >= 0 {
		err = json.Unmarshal(value, &data)
		return data, err
	}
	return base64.StdEncoding.AppendDecode(nil, value[1:len(value)-1])
}

// OneLine returns the beginning of a guest's text on one line, for errors and
// logs.
func OneLine(text string) string {
	const most = 100
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[:min(len(text), most)])
}

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
)

// Frame is an encoded control frame to the guest, in at most three parts that
// are written one after the other. A large payload is a part of its own and is
// never copied.
type Frame [3][]byte

// Len is the number of bytes on the wire.
func (f Frame) Len() int { return len(f[0]) + len(f[1]) + len(f[2]) }

// Bytes returns the frame in one piece.
func (f Frame) Bytes() []byte {
	if f[1] == nil && f[2] == nil {
		return f[0]
	}
	b := make([]byte, 0, f.Len())
	return append(append(append(b, f[0]...), f[1]...), f[2]...)
}

// joinBelow is the payload size up to which a frame is one part: copying is
// then cheaper than another write.
const joinBelow = 64 << 10

// EncodeExec encodes an exec frame.
func EncodeExec(e *Exec) (Frame, error) {
	return encode(TypeExec, e)
}

// EncodeShutdown encodes a shutdown frame.
func EncodeShutdown() Frame {
	return Frame{AppendControl(nil, []byte(`{"type":"shutdown"}`))}
}

// EncodeReply encodes the successful reply to call id. The result must be one
// valid JSON value and must not change until the frame is written; nil is null.
// Whether it is valid is not checked: it may be large, and who decoded it knows.
func EncodeReply(id uint64, result json.RawMessage) (Frame, error) {
	if result == nil {
		result = json.RawMessage("null")
	}
	head := make([]byte, headerSize, headerSize+64+min(len(result), joinBelow))
	head = append(head, `{"type":"reply","id":`...)
	head = strconv.AppendUint(head, id, 10)
	head = append(head, `,"ok":true,"result":`...)
	n := len(head) - headerSize + len(result) + 1
	if n > MaxToGuest {
		return Frame{}, fmt.Errorf("a reply of %d bytes, where %d are allowed", n, MaxToGuest)
	}
	binary.BigEndian.PutUint32(head, uint32(n))
	if len(result) <= joinBelow {
		head = append(head, result...)
		return Frame{append(head, '}')}, nil
	}
	return Frame{head, result, []byte{'}'}}, nil
}

// EncodeError encodes the reply to a call that failed.
func EncodeError(id uint64, e *CallError) (Frame, error) {
	return encode(TypeReply, struct {
		ID    uint64     `json:"id"`
		OK    bool       `json:"ok"`
		Error *CallError `json:"error"`
	}{id, false, e})
}

// encode makes a frame of a struct that encodes to an object with at least one
// member, and puts the type in front.
func encode(typ string, v any) (Frame, error) {
	var buf bytes.Buffer
	buf.Write(make([]byte, headerSize))
	buf.WriteString(`{"type":"` + typ + `",`)
	prefix := buf.Len()
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return Frame{}, fmt.Errorf("encode %s: %w", typ, err)
	}
	b := buf.Bytes()
	b = b[:len(b)-1]                        // the encoder's newline
	b = append(b[:prefix], b[prefix+1:]...) // the object's own brace
	n := len(b) - headerSize
	if n > MaxToGuest {
		return Frame{}, fmt.Errorf("%s frame of %d bytes, where %d are allowed", typ, n, MaxToGuest)
	}
	binary.BigEndian.PutUint32(b, uint32(n))
	return Frame{b}, nil
}

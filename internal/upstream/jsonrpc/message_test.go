package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func deep(open, middle, shut string, n int) []byte {
	return []byte(strings.Repeat(open, n) + middle + strings.Repeat(shut, n))
}

// checkMessage compares how a message is cut and written with encoding/json.
func checkMessage(t *testing.T, data []byte) {
	t.Helper()
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) == nil && object != nil {
		m, err := parseMessage(data)
		if err != nil {
			t.Fatalf("parseMessage(%.200q): %v", data, err)
		}
		for key, value := range map[string][]byte{"id": m.id, "method": m.method, "params": m.params, "result": m.result, "error": m.err} {
			if !bytes.Equal(value, object[key]) {
				t.Fatalf("parseMessage(%.200q) %s = %.200q, want %.200q", data, key, value, object[key])
			}
		}
	} else if m, err := parseMessage(data); err == nil {
		t.Fatalf("parseMessage(%.200q) = %+v, want an error", data, m)
	}
	// What is written to the stream is one line that means the same.
	valid := json.Valid(data)
	line, err := appendOneLine(nil, data)
	if (err == nil) != valid {
		t.Fatalf("appendOneLine(%.200q): %v, encoding/json accepts it: %v", data, err, valid)
	}
	if bytes.ContainsAny(line, "\n\r") {
		t.Fatalf("appendOneLine(%.200q) = %.200q, want one line", data, line)
	}
	var a, b any
	if json.Unmarshal(data, &a) == nil && (json.Unmarshal(line, &b) != nil || !equalJSON(a, b)) {
		t.Fatalf("appendOneLine(%.200q) = %.200q means something else", data, line)
	}
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

var messageSeeds = []string{
	``, ` `, `{}`, `[]`, `null`, `0`, `"a`, `"\u1234"`, `"\ud800"`, "\"\xff\"", `{"a":1,}`, `{"a":}`, `{} {}`, `{"id":1}x`,
	"\t{\r\n\"a\" : [ 1 , 2 ] }\n", `{"a":1,"a":2}`, `{"id":1,"id":2}`, "{\"i\xffd\":1}", `{"i\u0064":1,"id":2}`, `{"i\u0064":1}`,
	`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi \"there\""}]}}`,
	`{"result":{"big":9007199254740993},"jsonrpc":"2.0","id":7.0}`, `{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}`,
	`{"method":"a/b","params":[1,"\n"]}`, "\xef\xbb\xbf{}", "\x00",
}

func TestMessageAgreesWithEncodingJSON(t *testing.T) {
	for _, s := range messageSeeds {
		checkMessage(t, []byte(s))
	}
}

func TestMessageEveryTruncation(t *testing.T) {
	whole := []byte(`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"a\u00e9\\\"é"},[1.5e-3,null,true,false]],"x":-0.1}}`)
	for i := range whole {
		checkMessage(t, whole[:i])
		broken := bytes.Clone(whole)
		for _, c := range []byte{0, '"', '\\', '{', '}', ',', 'x', 0xff} {
			broken[i] = c
			checkMessage(t, broken)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range messageSeeds {
		f.Add([]byte(s))
	}
	f.Add(deep("[", "", "]", 130))
	f.Add(deep(`{"a":[`, "0", "]}", 70))
	f.Fuzz(checkMessage)
}

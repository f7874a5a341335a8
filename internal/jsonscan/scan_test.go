package jsonscan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// scanSeeds are texts that once separated scanners from each other.
var scanSeeds = []string{
	``, ` `, `{}`, `[]`, `null`, `true`, `fals`, `0`, `-0`, `01`, `1.`, `1.5e+10`, `-`, `1e`, `.5`, `+1`,
	`"`, `"a`, `"\u12"`, `"\u1234"`, `"\x"`, "\"\x01\"", "\"\x7f\"", `"\ud800"`, "\"\xff\"", `"é"`,
	`{"a":1}`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{,}`, `{"a":1 "b":2}`, `{"a":1,"a":2}`, `{"a":1}`,
	`[1,2,3]`, `[1,]`, `[,1]`, `[1 2]`, `[[],{},[{}]]`, `[}`, `{]`, `[[1]`, `{"a":[}`,
	"\t{\r\n\"a\" : [ 1 , 2 ] }\n", `{} {}`, `nullx`, `{"id":1}x`,
	`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi \"there\""}]}}`,
	`{"result":{"big":9007199254740993},"jsonrpc":"2.0","id":7.0}`,
	`{"i\u0064":1,"id":2}`, "{\"i\xffd\":1}", `{"":""}`,
	"{\"a\":\"01234567\\\"89\"}", `"0123456\\"`, `"01234567`, `"0123456789abcde` + "\x1f" + `"`,
	"\xef\xbb\xbf{}", "\x00", `"` + strings.Repeat("é", 20) + `"`,
}

func deep(open, middle, shut string, n int) []byte {
	return []byte(strings.Repeat(open, n) + middle + strings.Repeat(shut, n))
}

// checkScan compares everything the scanner says about data with encoding/json.
func checkScan(t *testing.T, data []byte) {
	t.Helper()
	valid := json.Valid(data)
	if got := Valid(data); got != valid {
		t.Fatalf("Valid(%.200q) = %v, encoding/json says %v", data, got, valid)
	}
	var object map[string]json.RawMessage
	isObject := json.Unmarshal(data, &object) == nil && object != nil
	seen := map[string]json.RawMessage{}
	err := Members(data, func(key string, value json.RawMessage) bool {
		seen[key] = value
		return true
	})
	if (err == nil) != isObject {
		t.Fatalf("Members(%.200q): %v, is an object: %v", data, err, isObject)
	}
	if isObject {
		if len(seen) != len(object) {
			t.Fatalf("Members(%.200q): %d keys, want %d", data, len(seen), len(object))
		}
		for key, value := range object {
			if !bytes.Equal(seen[key], value) {
				t.Fatalf("Members(%.200q)[%q] = %.200q, want %.200q", data, key, seen[key], value)
			}
		}
		depth, err := RawMembers(data, func(_, _ []byte) bool { return true })
		if want := nesting(data); err != nil || depth != want {
			t.Fatalf("RawMembers(%.200q): depth %d (%v), want %d", data, depth, err, want)
		}
	}
	var array []json.RawMessage
	isArray := json.Unmarshal(data, &array) == nil && array != nil
	i := 0
	err = Elements(data, func(value json.RawMessage) bool {
		if isArray && (i >= len(array) || !bytes.Equal(value, array[i])) {
			t.Fatalf("Elements(%.200q)[%d] = %.200q", data, i, value)
		}
		i++
		return true
	})
	if (err == nil) != isArray || isArray && i != len(array) {
		t.Fatalf("Elements(%.200q): %v after %d, is an array: %v of %d", data, err, i, isArray, len(array))
	}
}

// nesting returns how deep valid JSON nests.
func nesting(data []byte) int {
	deepest, level, inString := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '{' || c == '['):
			level++
			deepest = max(deepest, level)
		case !inString && (c == '}' || c == ']'):
			level--
		}
	}
	return deepest
}

func TestScanAgreesWithEncodingJSON(t *testing.T) {
	for _, s := range scanSeeds {
		checkScan(t, []byte(s))
		// The same at every alignment of the eight-byte steps.
		for pad := range 9 {
			checkScan(t, []byte(`{"`+strings.Repeat("k", pad)+`":`+s+`}`))
		}
	}
	for _, n := range []int{1, 63, 64, 65, 127, 128, 129, 1000, 9999, 10000, 10001} {
		checkScan(t, deep("[", "", "]", n))
		checkScan(t, deep(`{"a":`, "1", "}", n))
		checkScan(t, deep(`[{"a":`, "1", "}]", n/2))
		checkScan(t, deep("[", "", "}", n))
	}
}

func TestScanEveryTruncation(t *testing.T) {
	whole := []byte(`{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"a\u00e9\\\"é"},[1.5e-3,null,true,false]],"x":-0.1}}`)
	for i := range whole {
		checkScan(t, whole[:i])
		broken := bytes.Clone(whole)
		for _, c := range []byte{0, '"', '\\', '{', '}', ',', 'x', 0xff} {
			broken[i] = c
			checkScan(t, broken)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range scanSeeds {
		f.Add([]byte(s))
	}
	f.Add(deep("[", "", "]", 130))
	f.Add(deep(`{"a":[`, "0", "]}", 70))
	f.Fuzz(checkScan)
}

func bigResult(size int) []byte {
	text := strings.Repeat(`The quick brown fox\njumps over \"the\" lazy dog. `, size/50)
	return []byte(`{"result":{"content":[{"type":"text","text":"` + text + `"}]},"jsonrpc":"2.0","id":1}`)
}

func denseResult(size int) []byte {
	row := `{"id":12345,"name":"some name","tags":["a","b"],"ok":true,"score":0.25},`
	rows := strings.Repeat(row, size/len(row))
	return []byte(`{"result":{"rows":[` + strings.TrimSuffix(rows, ",") + `]},"jsonrpc":"2.0","id":1}`)
}

func BenchmarkScan10MB(b *testing.B) {
	for name, data := range map[string][]byte{"text": bigResult(10 << 20), "dense": denseResult(10 << 20)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if depth, err := RawMembers(data, func(_, _ []byte) bool { return true }); err != nil || depth == 0 {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				var m struct {
					ID     json.RawMessage
					Result json.RawMessage
				}
				if err := json.Unmarshal(data, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package mcpserver

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
)

// requests are sent to a server with the short way and to one without. id and
// meta are put in by the test.
var requests = []struct {
	name, params string
}{
	{"plain", `"name":"run_python","arguments":{"code":"print hello"}`},
	{"output that HTML would escape", `"name":"run_python","arguments":{"code":"print <a href=\"x\">&\u2028\u0000\ud83d\ude00 \\ud800"}`},
	{"a lone surrogate", `"name":"run_python","arguments":{"code":"print \ud800"}`},
	{"empty output", `"name":"run_python","arguments":{"code":"print "}`},
	{"an exception", `"name":"run_python","arguments":{"code":"raise ValueError: <b>"}`},
	{"a timeout", `"name":"run_python","arguments":{"code":"timeout","timeout":5}`},
	{"a timeout as a float", `"name":"run_python","arguments":{"code":"timeout","timeout":5.0}`},
	{"a timeout as an exponent", `"name":"run_python","arguments":{"code":"timeout","timeout":5e0}`},
	{"a timeout that is negative", `"name":"run_python","arguments":{"code":"timeout","timeout":-3}`},
	{"a timeout without end", `"name":"run_python","arguments":{"code":"timeout","timeout":1e300}`},
	{"a timeout that is no number", `"name":"run_python","arguments":{"code":"timeout","timeout":1e999}`},
	{"a timeout that is no integer", `"name":"run_python","arguments":{"code":"timeout","timeout":5.5}`},
	{"a timeout that is a text", `"name":"run_python","arguments":{"code":"timeout","timeout":"5"}`},
	{"a timeout that is true", `"name":"run_python","arguments":{"code":"timeout","timeout":true}`},
	{"a timeout that is null", `"name":"run_python","arguments":{"code":"timeout","timeout":null}`},
	{"servers", `"name":"run_python","arguments":{"code":"print x","servers":["fs","git"]}`},
	{"servers that are no texts", `"name":"run_python","arguments":{"code":"print x","servers":["fs",7,null,{"a":1}]}`},
	{"servers that are no list", `"name":"run_python","arguments":{"code":"print x","servers":"fs"}`},
	{"servers that are null", `"name":"run_python","arguments":{"code":"print x","servers":null}`},
	{"servers that are none", `"name":"run_python","arguments":{"code":"print x","servers":[]}`},
	{"no code", `"name":"run_python","arguments":{}`},
	{"code that is null", `"name":"run_python","arguments":{"code":null}`},
	{"code that is a number", `"name":"run_python","arguments":{"code":7}`},
	{"code twice", `"name":"run_python","arguments":{"code":"print a","code":"print b"}`},
	{"code in capitals", `"name":"run_python","arguments":{"Code":"print a"}`},
	{"arguments unknown to us", `"name":"run_python","arguments":{"code":"print a","wild":{"x":[1,2]}}`},
	{"no arguments", `"name":"run_python"`},
	{"arguments that are null", `"name":"run_python","arguments":null`},
	{"arguments that are a list", `"name":"run_python","arguments":[1]`},
	{"arguments that are a text", `"name":"run_python","arguments":"code"`},
	{"arguments twice", `"name":"run_python","arguments":{"code":"print a"},"arguments":{"code":"print b"}`},
	{"an unknown tool", `"name":"rm","arguments":{}`},
	{"a tool's name in another case", `"name":"Run_Python","arguments":{"code":"print a"}`},
	{"no tool", `"arguments":{"code":"print a"}`},
	{"a tool that is a number", `"name":7,"arguments":{"code":"print a"}`},
	{"members unknown to us", `"name":"run_python","arguments":{"code":"print a"},"other":[1]`},
	{"answers to questions that were not asked", `"name":"run_python","arguments":{"code":"print a"},"requestState":"x"`},
	{"an escaped name", `"name":"run\u005fpython","arguments":{"code":"print a"}`},
	{"pictures", `"name":"run_python","arguments":{"code":"draw"}`},
	{"an engine", `"name":"run_python","arguments":{"code":"print a","backend":"kaggle"}`},
	{"an engine that is null", `"name":"run_python","arguments":{"code":"print a","backend":null}`},
	{"an engine that is no text", `"name":"run_python","arguments":{"code":"print a","backend":["kaggle"]}`},
	{"spaces", ` "name" : "run_python" , "arguments" : { "code" : "print a" } `},
}

// TestShortWayAnswersAsTheSDKDoes is the SDK as the oracle of our own path, in
// every revision.
func TestShortWayAnswersAsTheSDKDoes(t *testing.T) {
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			short, sdk := serve(t, Config{}), serve(t, Config{SDKOnly: true})
			for _, c := range []*client{short, sdk} {
				c.open(version)
			}
			for i, r := range requests {
				for _, id := range []string{fmt.Sprint(i + 1), fmt.Sprintf(`"id %d"`, i), fmt.Sprintf("-%d", i+1)} {
					meta := ""
					if stateless(version) {
						meta = `,"_meta":{` + modernMeta + `}`
					}
					line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s%s}}`, id, r.params, meta)
					short.send(line)
					sdk.send(line)
					got, want := short.receive(), sdk.receive()
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s:\n short way: %v\n       SDK: %v", r.name, got, want)
					}
				}
			}
		})
	}
}

// TestWhatTakesTheShortWay says which lines do, so that the test above does
// not compare the SDK with itself.
func TestWhatTakesTheShortWay(t *testing.T) {
	const plain = `"name":"run_python","arguments":{"code":"print a"}`
	line := func(id, params string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + params + `}}`
	}
	tests := []struct {
		name, line string
		want       bool
	}{
		{"plain", line("1", plain), true},
		{"another order", `{"params":{` + plain + `},"method":"tools/call","id":1,"jsonrpc":"2.0"}`, true},
		{"a text as the id", line(`"a"`, plain), true},
		{"the largest exact id", line("999999999999999", plain), true},
		{"progress", line("1", plain+`,"_meta":{"progressToken":"t"}`), true},
		{"stateless", line("1", plain+`,"_meta":{`+modernMeta+`}`), true},
		{"no id", `{"jsonrpc":"2.0","method":"tools/call","params":{` + plain + `}}`, false},
		{"a null id", line("null", plain), false},
		{"an id that is no integer", line("1.5", plain), true},
		{"an id with an exponent", line("1e3", plain), true},
		{"an id beyond what is exact", line("9007199254740993", plain), true},
		{"an id that is an object", line("{}", plain), false},
		{"another method", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + plain + `}}`, false},
		{"another tool", line("1", `"name":"other","arguments":{}`), false},
		{"members unknown to us", line("1", plain+`,"task":{}`), false},
		{"an envelope unknown to us", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + plain + `},"x":1}`, false},
		{"a method twice", `{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/call","params":{` + plain + `}}`, false},
		{"a progress token that is a list", line("1", plain+`,"_meta":{"progressToken":[]}`), false},
		{"an unknown revision", line("1", plain+`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}`), false},
		{"a _meta that is null", line("1", plain+`,"_meta":null`), false},
		{"broken after the end", line("1", plain) + "}", false},
		{"broken inside", line("1", plain+`,`), false},
		{"two", line("1", plain) + line("1", plain), false},
	}
	for _, tt := range tests {
		if _, got := parseFast([]byte(tt.line)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A call from a client that the SDK has not accepted is the SDK's to refuse.
func TestUnknownClientsAreTheSDKs(t *testing.T) {
	lines := []string{
		call("1", "print a", ""), // before initialize
		call("2", "print a", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`),
		call("3", "print a", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":7}`),
		call("4", "print a", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":7,"io.modelcontextprotocol/clientCapabilities":{}}`),
		call("5", "print a", `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}`),
		call("6", "print a", `,"_meta":{`+modernMeta+`}`), // accepted
		call("7", "print a", `,"_meta":{`+modernMeta+`}`), // now the short way
		call("8", "print a", `,"_meta":{`+strings.Replace(modernMeta, `"t"`, `7`, 1)+`}`),
	}
	short, sdk := serve(t, Config{}), serve(t, Config{SDKOnly: true})
	for _, line := range lines {
		short.send(line)
		sdk.send(line)
		got, want := short.receive(), sdk.receive()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n short way: %v\n       SDK: %v", line, got, want)
		}
	}
}

// FuzzLine feeds a line to both ways. Neither may fall silent, and where both
// answer they must agree.
func FuzzLine(f *testing.F) {
	for _, r := range requests {
		f.Add(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + r.params + `}}`)
	}
	f.Add(`[]`)
	f.Add(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n") || strings.Contains(line, "wait") || strings.Contains(line, "subscriptions") || strings.Contains(line, "initialize") {
			t.Skip()
		}
		const last = `{"jsonrpc":"2.0","id":"last","method":"ping"}`
		var answers [2][]any
		for i, sdkOnly := range []bool{false, true} {
			s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), SDKOnly: sdkOnly})
			if err != nil {
				t.Fatal(err)
			}
			c := &client{t: t}
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			c.in, c.out, c.outR = inW, newTestReader(outR), outR
			done := make(chan error, 1)
			go func() { done <- s.Serve(t.Context(), inR, outW); outW.Close() }()
			c.handshake(legacyLatest)
			go func() {
				fmt.Fprintln(inW, line)
				fmt.Fprintln(inW, last)
				inW.Close()
			}()
			for {
				raw, err := c.out.ReadBytes('\n')
				if err != nil {
					break
				}
				answers[i] = append(answers[i], decode(t, raw))
			}
			<-done
		}
		if len(answers[0]) != len(answers[1]) || !sameAnswers(answers[0], answers[1]) {
			t.Errorf("%q:\n short way: %v\n       SDK: %v", line, answers[0], answers[1])
		}
	})
}

// sameAnswers compares without regard to order: answers may overtake.
func sameAnswers(a, b []any) bool {
	used := make([]bool, len(b))
next:
	for _, x := range a {
		for i, y := range b {
			if !used[i] && reflect.DeepEqual(x, y) {
				used[i] = true
				continue next
			}
		}
		return false
	}
	return true
}

// TestPicturesHaveNames: each picture follows its name, and those that are not shown
// are named at the end.
func TestPicturesHaveNames(t *testing.T) {
	c := serve(t, Config{})
	c.handshake(legacyLatest)
	c.send(call("1", "draw", ""))
	got, err := json.Marshal(c.receive()["result"].(map[string]any)["content"].([]any)[1:])
	const want = `[{"text":"a.png: \"Sales\\n\u003cper\u003e month\"","type":"text"},{"data":"AP8H","mimeType":"image/png","type":"image"},` +
		`{"text":"b.gif","type":"text"},{"data":"Zw==","mimeType":"image/gif","type":"image"},{"text":"1 more not shown: c.png. `
	if err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("got %s, want %s (%v)", got, want, err)
	}
}

package jsonrpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAnswersThatAreNoJSON(t *testing.T) {
	filler := strings.Repeat("x", 2*keptTail)
	tests := map[string]struct{ answer, want string }{
		"id first":    {`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"v":NaN}}}`, `, near "NaN" (byte `},
		"id last":     {`{"result":{"v":-Infinity},"jsonrpc":"2.0","id":%s}`, `, near "Infinity" (byte `},
		"id before":   {`{"result":[NaN, 1],"id":%s,"jsonrpc":"2.0"}`, `, near "NaN" (byte 12)`},
		"id amid":     {`{"a":"` + filler + `","id": %s ,"result":{"id":77,"v":nan},"b":"` + filler + `"}`, `, near "an" (byte `},
		"an error":    {`{"error":{"code":-1,"message":'single'},"id":%s}`, `, near "'single'" (byte `},
		"loose quote": {`{"id":%s,"result":"he said "hi""}`, `, near "hi" (byte `},
		"cut":         {`{"id":%s,"result":{"text":"abc`, `: it ends too early, after `},
		"long":        {`{"id":%s,"result":` + filler + `}`, `, near "` + filler[:shownFault] + `" (byte `},
		"a secret":    {`{"id":%s,"result":tophushhushtop}`, ` (byte `},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, p := connect(t, Options{Redact: func(s string) string { return strings.ReplaceAll(s, "hushhush", "***") }})
			ch, other := goCall(t.Context(), c, "bad", ""), goCall(t.Context(), c, "good", "")
			x, y := p.recv(), p.recv()
			if x.Method != "bad" {
				x, y = y, x
			}
			p.send(test.answer, x.ID)
			p.send(`{"id":%s,"result":"fine"}`, y.ID)
			if got := <-ch; !errors.Is(got.err, ErrNotJSON) || !strings.HasPrefix(got.err.Error(), "not valid JSON"+test.want) || strings.Contains(got.err.Error(), "hush") {
				t.Errorf("%v, want %q", got.err, test.want)
			}
			if got := <-other; string(got.result) != `"fine"` {
				t.Errorf("%s, %v", got.result, got.err)
			}
		})
	}
}

// What is no answer to the call must not fail it.
func TestNoJSONThatAnswersNothing(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	m := p.recv()
	p.send(`{bad`)
	p.send(`{"jsonrpc":"2.0","id":%s,"method":"m","params":{"result":1...`, m.ID)
	p.send(`{"level":"info","id":%s,"text":...}`, m.ID)
	p.send(`{"id":999,"result":NaN}`)
	p.send(`{"result":{"id":%s,"v":NaN}}`, m.ID)
	p.send(`{"id":%s,"result":"right"}`, m.ID)
	if got := <-ch; string(got.result) != `"right"` {
		t.Errorf("%s, %v", got.result, got.err)
	}
	// The end of the peer is what an answer cut off by it is told by.
	ch = goCall(t.Context(), c, "m", "")
	fmt.Fprintf(p.out, `{"id":%s,"result":{"v"`, p.recv().ID)
	_ = p.out.Close()
	if got := <-ch; !errors.Is(got.err, ErrClosed) {
		t.Errorf("%v", got.err)
	}
}

func TestNestedBeyondTheScanner(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	p.send(`{"id":%s,"result":%s}`, p.recv().ID, deep("[", "", "]", 10_001))
	if got := <-ch; !errors.Is(got.err, ErrTooLarge) {
		t.Errorf("%v", got.err)
	}
}

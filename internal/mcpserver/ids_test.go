package mcpserver

import (
	"strings"
	"testing"
)

// Ids that the SDK, or a float, would change.
var strangeIDs = []string{
	"9007199254740993", "-9007199254740993", "18446744073709551616", "1.5", "-0.25", "1.0", "1e3", "1E+400", "-0",
	strings.Repeat("7", 300), `""`, `"\u00e9\/\n"`, `"\u0000n1.5"`, `"<&>\u2028"`, `"1"`,
}

// receiveRaw returns the next answer's id as it was written, and the answer.
func receiveRaw(t *testing.T, c *client) (string, map[string]any) {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	return string(idOf(line)), decode(t, line).(map[string]any)
}

func TestIDsStayAsTheyAre(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		c := serve(t, Config{SDKOnly: sdkOnly})
		c.handshake(legacyLatest)
		for _, id := range strangeIDs {
			for _, request := range []string{
				call(id, "print 1", ""),
				`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`,
				`{"jsonrpc":"2.0","id":` + id + `,"method":"no such method"}`,
				"\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`,
			} {
				c.send(request)
				if got, answer := receiveRaw(t, c); got != id {
					t.Errorf("SDK only: %v, %.60s: got the id %s, want %s: %v", sdkOnly, request, got, id, answer)
				}
			}
		}
		// Equal ids are equal, however they are written; others are not.
		c.send(call("1e3", "wait 1h", ""), call("1000.0", "print x", ""))
		if got, answer := receiveRaw(t, c); got != "1000.0" || errorCode(answer) != "-32600" {
			t.Errorf("SDK only: %v: got %s, %v, want the id refused", sdkOnly, got, answer)
		}
		c.send(call("9007199254740992", "wait 1h", ""), call("9007199254740993", "print x", ""))
		if got, answer := receiveRaw(t, c); got != "9007199254740993" || answer["result"] == nil {
			t.Errorf("SDK only: %v: got %s, %v, want a result", sdkOnly, got, answer)
		}
		c.send(call("2.50", "wait 1h", ""))
		for _, id := range []string{"1000", "9007199254740992.0", "25e-1"} {
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		}
		c.send(`{"jsonrpc":"2.0","id":"next","method":"ping"}`)
		if got, answer := receiveRaw(t, c); got != `"next"` {
			t.Errorf("SDK only: %v: a cancelled request was answered: %v", sdkOnly, answer)
		}
		if err := c.end(); err != nil {
			t.Errorf("SDK only: %v: Serve: %v", sdkOnly, err)
		}
	}
}

// A progress token stays as it is, too.
func TestTokensStayAsTheyAre(t *testing.T) {
	for _, token := range []string{"9007199254740993", "1.50", `"\u00e9"`} {
		call, ok := parseFast([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_python","_meta":{"progressToken":` + token + `}}}`))
		if !ok || string(call.token) != token {
			t.Errorf("got %s, %v, want %s", call.token, ok, token)
		}
	}
}

func TestIDsInBatches(t *testing.T) {
	c := serve(t, Config{})
	c.handshake("2025-03-26")
	c.send(`[{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"},{"jsonrpc":"2.0","id":9007199254740993.0,"method":"ping"},{"jsonrpc":"2.0","id":1.5,"method":"ping"}]`)
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":9007199254740993,"result"`, `"id":9007199254740993.0,"error"`, `"id":1.5,"result"`} {
		if !strings.Contains(line, want) {
			t.Errorf("got %s, want %s", line, want)
		}
	}
}

// What is no request is refused with its id, so that the client does not wait.
func TestRefusalsHaveTheID(t *testing.T) {
	c := serve(t, Config{})
	c.handshake(legacyLatest)
	for line, want := range map[string]string{`{"id":1.5,"method":"ping"}`: "1.5", `{"jsonrpc":"2.0","id":{},"method":"ping"}`: "null"} {
		c.send(line)
		if got, answer := receiveRaw(t, c); got != want || errorCode(answer) != "-32600" {
			t.Errorf("%s: got %s, %v, want an error for %s", line, got, answer, want)
		}
	}
}

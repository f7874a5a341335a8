package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/session/hibernate"
)

// Two clients of one broker share its named sessions. Each has a session of its
// own, which ends with it.
func TestTwoClients(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("sdk %v", sdkOnly), func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			clients := []*client{serve(t, Config{Executor: b.client(t), SDKOnly: sdkOnly}), serve(t, Config{Executor: b.client(t), SDKOnly: sdkOnly})}
			text := func(c *client, id, code, extra, want string) {
				t.Helper()
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"run_python","arguments":{"code":%q%s}}}`, id, code, extra))
				result, _ := c.receive()["result"].(map[string]any)
				content, _ := result["content"].([]any)
				if len(content) == 0 || !strings.HasPrefix(content[0].(map[string]any)["text"].(string), want) {
					t.Errorf("%s: got %v, want %q", code, result, want)
				}
			}
			const shared = `,"session":"shared"`
			for i, c := range clients {
				c.handshake(legacyLatest)
				text(c, "1", fmt.Sprintf("x = %d", i), "", "Success (no output)")
				text(c, "2", fmt.Sprintf("y = %d", i), shared, "Success (no output)")
			}
			text(clients[0], "3", "x", "", "0")
			text(clients[1], "3", "x", "", "1")
			text(clients[0], "4", "y", shared, "1")
			text(clients[0], "5", "x", `,"session":"default"`, "0")

			own := func() (ids []string) {
				for _, i := range b.Sessions() {
					if i.Unnamed && i.Status == hibernate.Running {
						ids = append(ids, i.ClientID)
					}
				}
				return ids
			}
			if ids := own(); len(ids) != 2 || ids[0] == ids[1] || ids[0] == "" {
				t.Errorf("the clients' own sessions: got %q, want two", ids)
			}
			if err := clients[0].end(); err != nil {
				t.Error(err)
			}
			if ids := own(); len(ids) != 1 {
				t.Errorf("after the first has gone: got %q, want the second's", ids)
			}
			text(clients[1], "6", "x", "", "1")
			text(clients[1], "7", "y", shared, "1")
		})
	}
}

// A connection ends its client, also one that does not read.
func TestEndOfAClient(t *testing.T) {
	e := &stubExecutor{}
	c := serve(t, Config{Executor: e})
	c.handshake(legacyLatest)
	if err := c.end(); err != nil {
		t.Error(err)
	}
	if e.mu.Lock(); !e.ended {
		t.Error("the client was not ended")
	}
	e.mu.Unlock()
}

var _ Executor = (*broker.Client)(nil)

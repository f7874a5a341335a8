package mcpserver

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/authz/approval"
)

// TestInitializeAfterDiscover: a client may ask for the revisions and then begin a
// session, as it does that has waited in vain. What counts is what it says then.
func TestInitializeAfterDiscover(t *testing.T) {
	const (
		begin  = `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"second","version":"1"}}}`
		cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	)
	discover := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{%s}}`, meta("first", `{}`))
	for _, tt := range []struct {
		name  string
		first []string // before initialize
		waits bool     // for the answer to it
	}{
		{"answered", []string{discover}, true},
		{"refused", []string{strings.Replace(discover, "2026-07-28", "2099-01-01", 1)}, true},
		{"answered late", []string{discover}, false},
		{"cancelled", []string{discover, cancel}, false},
		{"twice", []string{discover, strings.Replace(discover, `"id":1`, `"id":7`, 1)}, false},
	} {
		for _, sdkOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, SDK only %v", tt.name, sdkOnly), func(t *testing.T) {
				var mu sync.Mutex
				var names []string
				c, e := asking(t, Config{SDKOnly: sdkOnly, Client: func(name string) {
					mu.Lock()
					defer mu.Unlock()
					names = append(names, name)
				}})
				// answer skips what a client that waits no longer gets of server/discover.
				answer := func(id string) map[string]any {
					for {
						if m := c.receive(); fmt.Sprint(m["id"]) == id || m["method"] == "elicitation/create" {
							return m
						}
					}
				}
				if c.send(tt.first...); tt.waits {
					answer("1")
				}
				c.send(begin)
				if got := answer("2"); !strings.Contains(fmt.Sprint(got["result"]), "protocolVersion:2025-11-25") {
					t.Fatalf("initialize: got %v, want its result", got)
				}
				c.send(initialized, call("3", "delete", ""))
				if got := answer("3"); got["method"] != "elicitation/create" {
					t.Fatalf("got %v, want the question that the client of initialize takes", got)
				}
				if _, err := e.book.Answer(approval.Answer{ID: e.book.List()[0].ID, Revision: 1, Choice: approval.No, By: "elsewhere"}); err != nil {
					t.Fatal(err)
				}
				if got := answer("3"); !strings.Contains(fmt.Sprint(got["result"]), "by elsewhere") {
					t.Errorf("the call: got %v", got)
				}
				c.send(strings.Replace(begin, `"id":2`, `"id":4`, 1))
				if got := answer("4"); errorCode(got) == "" {
					t.Errorf("a second initialize: got %v, want an error", got)
				}
				e.mu.Lock()
				if len(e.principals) != 1 || e.principals[0].Client != "second" {
					t.Errorf("got the principals %+v, want second", e.principals)
				}
				e.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				if i := slices.Index(names, "second"); i < 0 || i != len(names)-1 {
					t.Errorf("got the names %q, want second last", names)
				}
			})
		}
	}
}

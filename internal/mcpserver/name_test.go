package mcpserver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sallyport/sallyport/internal/authz"
)

// TestClientName: the client's name is reported once in every revision, and
// each request carries it as a label of the local user.
func TestClientName(t *testing.T) {
	for _, version := range revisions {
		for _, sdkOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, SDK only %v", version, sdkOnly), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var names []string
					e := &stubExecutor{}
					c := serve(t, Config{Executor: e, SDKOnly: sdkOnly, Client: func(name string) {
						mu.Lock()
						defer mu.Unlock()
						names = append(names, name)
					}})
					c.open(version)
					meta := ""
					if stateless(version) {
						meta = `,"_meta":{` + modernMeta + `}`
					}
					for _, id := range []string{"1", "2", "3"} {
						c.send(call(id, "print a", meta))
						c.receive()
					}
					synctest.Wait()
					if err := c.end(); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if !slices.Equal(names, []string{"t"}) {
						t.Errorf("got the names %q, want t once", names)
					}
					e.mu.Lock()
					defer e.mu.Unlock()
					if want := authz.Local("t"); len(e.principals) != 3 || e.principals[0] != want || e.principals[2] != want {
						t.Errorf("got the principals %+v, want %+v three times", e.principals, want)
					}
				})
			})
		}
	}
}

func TestShortVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "dev": "dev", "": "", "1.2.3-rc.1": "1.2.3-rc.1",
		"0.0.0-20260102030405-abcdefabcdef":        "0.0.0-abcdefa",
		"0.0.0-20260102030405-abcdefabcdef+dirty":  "0.0.0-abcdefa+dirty",
		"1.2.4-0.20260102030405-abcdefabcdef":      "1.2.4-0.abcdefa",
		"1.2.4-rc.1.0.20260102030405-abcdefabcdef": "1.2.4-rc.1.0.abcdefa",
	} {
		if got := shortVersion(version); got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}

package mcpserver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// Whoever asks learns the client's name, in every revision, and once.
func TestClientName(t *testing.T) {
	for _, version := range revisions {
		for _, sdkOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, SDK only %v", version, sdkOnly), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var names []string
					c := serve(t, Config{SDKOnly: sdkOnly, Client: func(name string) {
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
					mu.Lock()
					defer mu.Unlock()
					if !slices.Equal(names, []string{"t"}) {
						t.Errorf("told of %q", names)
					}
					if err := c.end(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

// What frames cost the host is charged to the share of a sandbox that uses
// nothing itself.
func TestBackgroundFramesAreCharged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		send   func(*guestEnd)
		paused bool
	}{
		{"none", func(*guestEnd) {}, false},
		{"some frames", func(g *guestEnd) { g.control(`{"type":"cancel","id":1}`) }, false},
		{"many frames", func(g *guestEnd) {
			for range 20 {
				g.control(`{"type":"cancel","id":1}`)
			}
		}, true},
		{"many bytes", func(g *guestEnd) { g.control(`{"type":"cancel","id":1,"x":"%s"}`, strings.Repeat("x", 100<<10)) }, true},
		{"much output", func(g *guestEnd) {
			for range 20 {
				g.output(wire.KindStdout, "x")
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := make(chan struct{})
				e := &scripted{pausable: true, guest: each(func(g *guestEnd, f frame) bool {
					go func() {
						for { // every millisecond, unless it is paused
							select {
							case <-end:
								return
							case <-g.run.killed:
								return
							case <-time.After(time.Millisecond):
							}
							g.run.mu.Lock()
							paused := g.run.paused
							g.run.mu.Unlock()
							if !paused {
								tt.send(g)
							}
						}
					}()
					return words(g, f)
				})}
				s := newSingle(t, e, nil)
				exec(t, s, "say x")
				time.Sleep(10 * time.Second)
				r := e.run(0)
				r.mu.Lock()
				paused := r.paused
				r.mu.Unlock()
				if paused != tt.paused {
					t.Errorf("paused %v, want %v", paused, tt.paused)
				}
				close(end)
				if out := exec(t, s, "say y"); out.End != Finished || out.Lost != "" {
					t.Errorf("afterwards: %+v", out)
				}
				s.Close()
			})
		})
	}
}

package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNamedSessionsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, dir := sets(t, func(c *setup) { c.MaxNamed = 3 })
		set, other := open(e), open(e)
		defer set.Close()
		defer other.Close()
		exec(t, get(t, set, DefaultName), "set x 1") // the process's own does not count
		for _, name := range []string{"b", "a", "c"} {
			exec(t, get(t, set, name), "set x "+name)
			time.Sleep(time.Second)
		}
		full := func(first string) {
			t.Helper()
			_, err := set.Get("d")
			if err == nil || !strings.Contains(err.Error(), "there are 3 named sessions of this client already") ||
				!strings.Contains(err.Error(), "sessions.maxNamed") || !strings.Contains(err.Error(), "longest: "+first) {
				t.Errorf("%v", err)
			}
		}
		full("b, a, c")
		time.Sleep(2 * time.Minute) // they sleep, and are there still
		full("b, a, c")
		if out := exec(t, get(t, set, "b"), "get x"); out.Stdout.Head != "b" {
			t.Errorf("%+v", out)
		}
		full("a, c, b")
		exec(t, get(t, other, "d"), "set x d") // another client
		// One that is forgotten makes room, whoever does it.
		if err := offline(dir).Reset("a", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		exec(t, get(t, set, "e"), "set x e")
		full("c, b, e")
		if err := set.Remove(t.Context(), "e"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		exec(t, get(t, set, "f"), "set x f")
		full("c, b, f")
	})
}

// Names that were used once are not remembered for ever.
func TestNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSaving()
		open, _ := sets(t, func(c *setup) { c.MaxNamed = 2 })
		set := open(e)
		defer set.Close()
		exec(t, get(t, set, "stays"), "set x 1")
		for i := range 2 * maxKnown {
			name := fmt.Sprint("s", i)
			s := get(t, set, name)
			s.status.begun = true // as if it had run
			if i%100 == 0 {
				exec(t, s, "set x 1")
				if err := set.Reset(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(entering / 16)
		}
		if n := len(set.sessions); n > maxKnown+set.options.MaxNamed {
			t.Errorf("%d names", n)
		}
		if out := exec(t, get(t, set, "stays"), "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("%+v", out)
		}
	})
}

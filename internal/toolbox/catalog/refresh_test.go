package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// TestBackground: nothing before the first execution or a quiet moment, then
// everything, two at a time, and never beside an execution.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		for i := range 6 {
			f.add(fmt.Sprintf("s%d", i), slow(time.Second, "t"))
		}
		c := New(Config{Source: f, Quiet: 5 * time.Second})
		defer c.Close()
		c.Start()
		c.Start()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if got := f.asks(); got != "" {
			t.Errorf("asked %s at once", got)
		}
		done := c.Busy() // code runs when the quiet moment would be over
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := f.asks(); got != "" {
			t.Errorf("asked %s beside an execution", got)
		}
		done()
		synctest.Wait()
		if got := f.asks(); got != "s0 s1" {
			t.Errorf("asked %s first", got)
		}
		done = c.Busy()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := f.asks(); got != "" {
			t.Errorf("went on with %s beside an execution", got)
		}
		done()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := f.asks(); got != "s2 s3 s4 s5" || f.peak != parallel {
			t.Errorf("asked %s, %d at a time", got, f.peak)
		}
		if _, missing := c.Search(Query{Text: "t"}); len(missing) != 0 {
			t.Errorf("missing %s", left(missing))
		}
		// A notice makes a list old, age does, and nothing else.
		time.Sleep(time.Hour)
		synctest.Wait()
		c.Stale("s3")
		c.Stale("nope")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := f.asks(); got != "s3" {
			t.Errorf("asked %s after a notice", got)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := f.asks(); got != "s0 s1 s2 s3 s4 s5" {
			t.Errorf("asked %s after a day", got)
		}
	})
}

func TestBackgroundAfterTheFirstExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("git", has("log"))
		c := New(Config{Source: f, Quiet: time.Hour})
		defer c.Close()
		c.Start()
		c.Busy()()
		synctest.Wait()
		if got := f.asks(); got != "git" {
			t.Errorf("asked %q", got)
		}
	})
}

func TestFailuresAreTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("bad", fails)
		c := New(Config{Source: f, Quiet: time.Second})
		defer c.Close()
		c.Start()
		counts := []int{}
		for range 4 {
			time.Sleep(6 * time.Hour)
			synctest.Wait()
			counts = append(counts, strings.Count(f.asks(), "bad"))
		}
		if counts[0] < 5 || counts[0] > 10 || counts[3] > 1 {
			t.Errorf("tried %v times in each six hours", counts)
		}
	})
}

// TestUnwritablePlaceIsNoLoop: what cannot be kept is not asked for again and
// again, and a server that never tires of changes is not either.
func TestUnwritablePlaceIsNoLoop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("bad", fails)
		f.add("git", has("log"))
		c := New(Config{Source: f, Dir: store.At(file).Sub("catalog"), Quiet: time.Second})
		defer c.Close()
		c.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		asks := f.asks()
		if strings.Count(asks, "git") != 1 || strings.Count(asks, "bad") > 60 {
			t.Errorf("asked %s in an hour", asks)
		}
		for range 600 {
			c.Stale("git")
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := strings.Count(f.asks(), "git"); n < 5 || n > 7 {
			t.Errorf("asked %d times in a minute of changes", n)
		}
	})
}

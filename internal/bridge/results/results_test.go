package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCache(t *testing.T) *Cache {
	c := New(Config{Entries: 100, Bytes: 1 << 20})
	t.Cleanup(c.Close)
	return c
}

func key(arguments string) Key {
	return Key{Server: "s", Owner: "local", Tool: "read", Form: []byte("{}"), Arguments: json.RawMessage(arguments)}
}

// calls answers with how often it was called.
type calls struct {
	n   atomic.Int64
	err error
}

func (c *calls) call() (json.RawMessage, bool, error) {
	return json.RawMessage(fmt.Sprintf(`"%d"`, c.n.Add(1))), true, c.err
}

// get shows an answer: the result, and its age if it was kept.
func get(t *testing.T, c *Cache, k Key, fresh bool, of *calls) string {
	t.Helper()
	a, err := c.Do(t.Context(), k, 10*time.Minute, fresh, of.call)
	if err != nil {
		return err.Error()
	}
	if a.Kept {
		return fmt.Sprintf("%s kept %s", a.Result, a.Age.Round(time.Second))
	}
	return string(a.Result)
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, of := newCache(t), &calls{}
		for i, step := range []struct {
			sleep time.Duration
			fresh bool
			do    func()
			want  string
		}{
			{want: `"1"`},
			{sleep: 3 * time.Minute, want: `"1" kept 3m0s`},
			{sleep: 7*time.Minute - time.Second, want: `"1" kept 9m59s`},
			{sleep: time.Second, want: `"2"`},
			{sleep: time.Minute, fresh: true, want: `"3"`},
			{sleep: time.Minute, want: `"3" kept 1m0s`},
			{do: func() { c.Forget("other") }, want: `"3" kept 1m0s`},
			{do: func() { c.Forget("s") }, want: `"4"`},
			{do: func() { c.Writing("s")() }, want: `"5"`},
			{do: func() { c.Writing("other")() }, want: `"5" kept 0s`},
			{do: func() { of.err = errors.New("no") }, fresh: true, want: "no"},
			{want: `"5" kept 0s`},
			{do: func() { c.Forget("s") }, want: "no"},
			{do: func() { of.err = nil }, want: `"8"`},
		} {
			time.Sleep(step.sleep)
			if step.do != nil {
				step.do()
			}
			if got := get(t, c, key(`{}`), step.fresh, of); got != step.want {
				t.Errorf("step %d: got %s, want %s", i, got, step.want)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if c.bytes != 0 || len(c.servers) != 0 || c.order.Len() != 0 {
			t.Errorf("after everything has expired: got %d bytes, %d servers, want none", c.bytes, len(c.servers))
		}
	})
}

// Who asks with a shorter time than the result was kept for does not get it.
func TestShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, of := newCache(t), &calls{}
		get(t, c, key(`{}`), false, of)
		time.Sleep(2 * time.Minute)
		a, err := c.Do(t.Context(), key(`{}`), time.Minute, false, of.call)
		if err != nil || a.Kept {
			t.Errorf("got %+v, %v, want a call", a, err)
		}
	})
}

func TestKeys(t *testing.T) {
	first := key(`{"a":1,"b":[{"x":1,"y":"é"}]}`)
	with := func(change func(*Key)) Key { k := first; change(&k); return k }
	for name, tt := range map[string]struct {
		key  Key
		same bool
	}{
		"another order":    {key(` { "b" : [ {"y":"é", "x":1} ] , "a" : 1 } `), true},
		"another number":   {key(`{"a":1.0,"b":[{"x":1,"y":"é"}]}`), false},
		"another spelling": {key(`{"a":1,"b":[{"x":1,"y":"\u00e9"}]}`), false}, // a call more than needed
		"another server":   {with(func(k *Key) { k.Server = "t" }), false},
		"another user":     {with(func(k *Key) { k.Owner = "ann" }), false},
		"another tool":     {with(func(k *Key) { k.Tool = "list" }), false},
		"another form":     {with(func(k *Key) { k.Form = []byte(`{"x":1}`) }), false},
		"parts elsewhere":  {with(func(k *Key) { k.Owner, k.Tool = "localr", "ead" }), false},
	} {
		a, _ := first.digest()
		b, ok := tt.key.digest()
		if got := ok && a == b; got != tt.same {
			t.Errorf("%s: got the same key: %v, want %v", name, got, tt.same)
		}
	}
	for _, pair := range [][2]string{
		{`{"n":9007199254740993}`, `{"n":9007199254740992}`},
		{`{"n":"\ud800"}`, `{"n":"\ud801"}`},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`},
		{`{"a":[1,2]}`, `{"a":[2,1]}`},
		{`{"a":[[],1]}`, `{"a":[[1]]}`},
		{`{"a":{}}`, `{"a":[]}`},
	} {
		one, two := key(pair[0]), key(pair[1])
		a, ok := one.digest()
		b, _ := two.digest()
		if !ok || a == b {
			t.Errorf("%s and %s have the same key", pair[0], pair[1])
		}
	}
	for _, large := range []string{`{"a":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + `}`, `{"a":"` + strings.Repeat("x", maxArguments) + `"}`} {
		if k := key(large); func() bool { _, ok := k.digest(); return ok }() {
			t.Errorf("%.20s… has a key", large)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"b":1,"a":[true,null,"x",-1e5,{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		once, ok := canonical(nil, data, maxDepth)
		if ok && json.Valid(data) && len(once) == 0 {
			t.Errorf("%q has no form", data)
		}
	})
}

// Of the same calls at a time one is made, and none fails because of another.
func TestMerge(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCache(t)
			var made atomic.Int64
			first, cancel := context.WithCancel(t.Context())
			ask := func(ctx context.Context, out chan<- string) {
				a, err := c.Do(ctx, key(`{}`), time.Minute, false, func() (json.RawMessage, bool, error) {
					n := made.Add(1)
					select {
					case <-time.After(time.Second):
						return json.RawMessage(fmt.Sprint(n)), true, nil
					case <-ctx.Done():
						return nil, false, ctx.Err()
					}
				})
				out <- fmt.Sprintf("%s %v %v %s", a.Result, err, a.Kept, a.Age)
			}
			leader, others, gone := make(chan string, 1), make(chan string, 3), make(chan string, 1)
			go ask(first, leader)
			synctest.Wait()
			for range 3 {
				go ask(t.Context(), others)
			}
			waits, leave := context.WithCancel(t.Context())
			go ask(waits, gone)
			synctest.Wait()
			leave() // who only waits takes nothing from the others
			if got := <-gone; got != " context canceled false 0s" {
				t.Errorf("one that gave up: got %s", got)
			}
			want, calls := "1 <nil> true 0s", int64(1)
			if fails {
				cancel()
				calls = 4
			}
			<-leader
			for range 3 {
				got := <-others
				if fails {
					got, want = got[2:], "<nil> false 0s"
				}
				if got != want {
					t.Errorf("the first fails %v: got %s, want %s", fails, got, want)
				}
			}
			if got := made.Load(); got != calls {
				t.Errorf("the first fails %v: got %d calls, want %d", fails, got, calls)
			}
			cancel()
		})
	}
}

// What is read while something is written is not kept, and no one who comes after
// a write gets what was read before it.
func TestWrites(t *testing.T) {
	const read, write = 2 * time.Second, time.Second
	for name, tt := range map[string]struct {
		writeAt  time.Duration // the read begins at 2 s
		write    time.Duration // how long it takes
		kept     bool
		joins    bool // one that asks the same at 3.5 s gets the same result
		secondAt time.Duration
	}{
		"before":             {0, write, true, true, 0},
		"ends during":        {1500 * time.Millisecond, write, false, false, 0},
		"begins during":      {3 * time.Second, 5 * time.Second, false, false, 0},
		"within":             {2500 * time.Millisecond, 500 * time.Millisecond, false, false, 0},
		"around":             {time.Second, 10 * time.Second, false, true, 0},
		"after":              {5 * time.Second, write, false, true, 0},
		"two that take time": {time.Second, 1500 * time.Millisecond, false, false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCache(t)
				var made atomic.Int64
				slow := func() (json.RawMessage, bool, error) {
					n := made.Add(1)
					time.Sleep(read)
					return json.RawMessage(fmt.Sprint(n)), true, nil
				}
				at := func(when time.Duration, do func()) {
					go func() { time.Sleep(when); do() }()
				}
				writing := func() { ended := c.Writing("s"); time.Sleep(tt.write); ended() }
				at(tt.writeAt, writing)
				if tt.secondAt > 0 {
					at(tt.secondAt, writing)
				}
				at(2*time.Second, func() { _, _ = c.Do(t.Context(), key(`{}`), time.Hour, false, slow) })
				at(3500*time.Millisecond, func() {
					a, err := c.Do(t.Context(), key(`{}`), time.Hour, false, func() (json.RawMessage, bool, error) { return nil, false, nil })
					if err != nil || a.Kept != tt.joins {
						t.Errorf("one that comes later: got %+v, %v, want the same result: %v", a, err, tt.joins)
					}
				})
				time.Sleep(20 * time.Second)
				c.mu.Lock() // for the race detector: all others have ended
				defer c.mu.Unlock()
				if got := c.order.Len() == 1; got != tt.kept {
					t.Errorf("got it kept: %v, want %v", got, tt.kept)
				}
				if !tt.kept && len(c.servers) != 0 {
					t.Errorf("got %d servers, want none", len(c.servers))
				}
			})
		})
	}
}

func TestBounds(t *testing.T) {
	c, of := New(Config{Entries: 3, Bytes: 8 << 10}), &calls{}
	defer c.Close()
	sized := func(k Key, n int) {
		if _, err := c.Do(t.Context(), k, time.Hour, false, func() (json.RawMessage, bool, error) {
			return json.RawMessage(strings.Repeat("1", n)), true, nil
		}); err != nil {
			t.Error(err)
		}
	}
	has := func(k Key) bool {
		id, _ := k.digest()
		s := c.servers[k.Server]
		return s != nil && s.entries[id] != nil
	}
	keys := make([]Key, 6)
	for i := range keys {
		keys[i] = key(fmt.Sprintf(`{"n":%d}`, i))
		keys[i].Server = fmt.Sprint(i)
	}
	for i := range 3 {
		sized(keys[i], 10)
	}
	get(t, c, keys[0], false, of) // it is used
	sized(keys[3], 10)
	if !has(keys[0]) || has(keys[1]) || !has(keys[2]) || !has(keys[3]) || len(c.servers) != 3 {
		t.Error("one too many: the one that was not used for longest is not the one that went")
	}
	sized(keys[4], 8<<10/4)
	if has(keys[4]) {
		t.Error("a result of more than a quarter is kept")
	}
	for i := range keys {
		sized(keys[i], 8<<10/4-overhead)
	}
	if c.bytes > 8<<10 || c.order.Len() > 3 {
		t.Errorf("got %d bytes in %d results, want at most 8 KiB in 3", c.bytes, c.order.Len())
	}
	// What an error hides or a tool does not want kept is not kept.
	if _, err := c.Do(t.Context(), key(`{}`), time.Hour, false, func() (json.RawMessage, bool, error) { return json.RawMessage(`1`), false, nil }); err != nil || has(key(`{}`)) {
		t.Errorf("got %v, or a result that may not be kept", err)
	}
}

// What is on disk is there for the next process, if it still holds.
func TestDisk(t *testing.T) {
	dir := store.At(filepath.Join(t.TempDir(), "results"))
	opened := func() *Cache { return New(Config{Entries: 10, Bytes: 1 << 20, Dir: dir}) }
	lasting := func(arguments string) Key {
		k := key(arguments)
		k.Lasting = true
		return k
	}
	files := func() int {
		names, err := dir.List()
		if err != nil {
			t.Error(err)
		}
		return len(names)
	}
	of := &calls{}
	c := opened()
	get(t, c, lasting(`{"n":1}`), false, of)
	get(t, c, lasting(`{"n":2}`), false, of)
	get(t, c, key(`{"n":3}`), false, of) // of a server that only this process knows
	second := opened()                   // another process, meanwhile
	if got := get(t, second, lasting(`{"n":1}`), false, of); got != `"4"` {
		t.Errorf("two processes at a time: got %s, want a call", got)
	}
	second.Forget("s")
	second.Close()
	if n := files(); n != 2 {
		t.Errorf("got %d files, want 2", n)
	}
	c.Close()
	names, err := dir.List()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir.Path(names[0]))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file of mode 0600", info.Mode(), err)
	}
	for name, content := range map[string]string{
		"notes": "{}\n{}", strings.Repeat("ab", 32): "{}", strings.Repeat("cd", 32): `{"server":"cw==","stored":"2001-01-01T00:00:00Z","keep":1000}` + "\n1",
		strings.Repeat("ef", 32): `{"server":"cw==","stored":"2201-01-01T00:00:00Z","keep":1000}` + "\n1",
	} {
		if err := dir.Write(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	c = opened()
	if got := get(t, c, lasting(`{"n":1}`), false, of); got != `"1" kept 0s` {
		t.Errorf("the next process: got %s", got)
	}
	if n := files(); n != 2 {
		t.Errorf("got %d files, want what cannot be used to be removed", n)
	}
	ended := c.Writing("s")
	if n := files(); n != 0 {
		t.Errorf("got %d files while something is written, want none", n)
	}
	ended()
	c.Close()
}

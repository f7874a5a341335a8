package store

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	d := At(t.TempDir())
	var c Cache[string]
	made := 0
	get := func(size int64) (string, error) {
		return c.Get(d, "a", func() (string, int64, error) {
			made++
			data, err := d.Read("a", 100)
			return string(data), size, err
		})
	}
	if _, err := get(1); !errors.Is(err, fs.ErrNotExist) || made != 0 {
		t.Fatal(err, made)
	}
	step := 0
	write := func(text string) func() error {
		return func() error {
			step++
			long := time.Now().Add(time.Duration(step-100) * time.Hour)
			return errors.Join(d.Write("a", []byte(text)), os.Chtimes(d.Path("a"), long, long))
		}
	}
	steps := []struct {
		name   string
		do     func() error
		want   string
		made   int
		size   int64
		broken bool
	}{
		{name: "written", do: write("one"), want: "one", made: 1, size: 10},
		{name: "the same", do: func() error { return nil }, want: "one", made: 1, size: 10},
		{name: "replaced by as much", do: write("two"), want: "two", made: 2, size: maxCached + 1},
		{name: "too large to keep", do: func() error { return nil }, want: "two", made: 3, size: 10},
		{name: "kept", do: func() error { return nil }, want: "two", made: 3, size: 10},
		{name: "edited in place", do: func() error { return os.WriteFile(d.Path("a"), []byte("three"), 0o600) }, want: "three", made: 4, size: 10},
		{name: "not kept so soon", do: func() error { return nil }, want: "three", made: 5, size: 10},
		{name: "removed", do: func() error { return d.Remove("a") }, made: 5, broken: true},
		{name: "there again", do: write("four"), want: "four", made: 6, size: 10},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(err)
		}
		got, err := get(s.size)
		if got != s.want || made != s.made || (err != nil) != s.broken {
			t.Errorf("%s: %q, %v; made %d times, want %q and %d", s.name, got, err, made, s.want, s.made)
		}
	}
	if c.size != 10 {
		t.Errorf("its size is %d", c.size)
	}
}

// TestCacheTogether: readers find the file as it is, while it changes.
func TestCacheTogether(t *testing.T) {
	d := At(t.TempDir())
	var c Cache[int]
	number := func() (int, int64, error) {
		data, err := d.Read("n", 100)
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.Atoi(string(data))
		return n, 1, err
	}
	if err := d.Write("n", []byte("0")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			last := 0
			for last < 50 {
				n, err := c.Get(d, "n", number)
				if err != nil || n < last {
					t.Errorf("%d after %d, %v", n, last, err)
					return
				}
				last = n
			}
		})
	}
	for i := range 50 {
		if err := d.Write("n", []byte(strconv.Itoa(i+1))); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}

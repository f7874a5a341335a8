//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A cacheTest opens machines with one cache.
type cacheTest struct {
	t       *testing.T
	config  Config
	scratch string
}

// opened reports whether opening a machine compiled the interpreter.
func (c cacheTest) opened() (compiled bool) {
	c.t.Helper()
	config := c.config
	var steps []bool
	config.Progress = func(p Progress) { steps = append(steps, p.Done) }
	m, err := Open(c.t.Context(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	img := bootTiny(c.t, m)
	c.t.Cleanup(func() { m.Close(context.Background()) })
	s, in, out := pipes(c.t)
	session, err := img.Start(c.t.Context(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	k := attach(c.t, session, in, out)
	k.say("c")
	k.hear("1")
	if left, err := os.ReadDir(c.scratch); err != nil || len(left) > 0 {
		c.t.Errorf("left behind: %v, %v", left, err)
	}
	switch {
	case len(steps) == 0:
		return false
	case len(steps) == 2 && !steps[0] && steps[1]:
		return true
	}
	c.t.Fatalf("progress: %v", steps)
	return
}

// file returns the one file of the cache.
func (c cacheTest) file() string {
	c.t.Helper()
	entries, err := os.ReadDir(c.config.CacheDir)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(entries) != 1 {
		c.t.Fatalf("the cache has %d files, want one", len(entries))
	}
	return filepath.Join(c.config.CacheDir, entries[0].Name())
}

func newCacheTest(t *testing.T) cacheTest {
	scratch := t.TempDir()
	c := cacheTest{t: t, scratch: scratch, config: Config{
		CacheDir: t.TempDir(), ScratchDir: scratch, Key: bytes.Repeat([]byte{7}, 32), Interpreter: tiny,
	}}
	if !c.opened() {
		t.Fatal("nothing was compiled at first")
	}
	return c
}

func TestCache(t *testing.T) {
	c := newCacheTest(t)
	if c.opened() {
		t.Error("compiled although the code was there")
	}
	c.config.Build = "another executable"
	if !c.opened() {
		t.Error("code of another executable was used")
	}
}

// TestForgedCache: what somebody else has put there is not run, and replaced.
func TestForgedCache(t *testing.T) {
	flip := func(at int) func([]byte) []byte {
		return func(data []byte) []byte {
			if at < 0 {
				at += len(data)
			}
			data[at] ^= 1
			return data
		}
	}
	head := len(codeForm) + 1
	for name, change := range map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"form":      flip(0),
		"name":      flip(head + 3),
		"salt":      flip(head + 65 + 3),
		"tag":       flip(head + 65 + 65 + 3),
		"code":      flip(-1),
		"shortened": func(data []byte) []byte { return data[:len(data)-1] },
		"longer":    func(data []byte) []byte { return append(data, 0) },
		"head only": func(data []byte) []byte { return data[:bytes.IndexByte(data, '\n')+1] },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCacheTest(t)
			file := c.file()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, change(data), 0o600); err != nil {
				t.Fatal(err)
			}
			if !c.opened() {
				t.Error("the code was used")
			}
			if c.opened() {
				t.Error("the code was not replaced")
			}
		})
	}
	t.Run("key", func(t *testing.T) {
		c := newCacheTest(t)
		file := c.file()
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.config.Key = bytes.Repeat([]byte{8}, 32)
		if !c.opened() {
			t.Fatal("nothing was compiled with another key")
		}
		if c.file() == file {
			t.Error("two keys have one file")
		}
		if err := os.WriteFile(c.file(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if !c.opened() {
			t.Error("code under another key was used")
		}
	})
	t.Run("link", func(t *testing.T) {
		c := newCacheTest(t)
		file, elsewhere := c.file(), filepath.Join(t.TempDir(), "code")
		if err := os.Rename(file, elsewhere); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, file); err != nil {
			t.Fatal(err)
		}
		if !c.opened() {
			t.Error("a link was followed")
		}
	})
}

func TestCacheNeedsKey(t *testing.T) {
	c := Config{CacheDir: t.TempDir(), Interpreter: tiny}
	if m, err := Open(t.Context(), c); err == nil {
		m.Close(t.Context())
		t.Error("a cache without a key was opened")
	}
}

// TestCacheThatCannotBeWritten is no reason not to start.
func TestCacheThatCannotBeWritten(t *testing.T) {
	c := Config{CacheDir: filepath.Join(t.TempDir(), "absent"), Key: make([]byte, 32), Interpreter: tiny}
	m, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	m.Close(t.Context())
}

// TestUnkept: an interpreter whose code cannot be kept runs, and says why and where.
func TestUnkept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	var unkept error
	m, err := Open(t.Context(), Config{
		Interpreter: tiny, CacheDir: dir, ScratchDir: t.TempDir(), Key: make([]byte, 32), Build: "b",
		Progress: func(p Progress) { unkept = p.Unkept },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	if !errors.Is(unkept, fs.ErrNotExist) || !strings.Contains(unkept.Error(), dir) {
		t.Errorf("got %v, want an error about %s", unkept, dir)
	}
}

// TestNoScratch: without a place for wazero's directory an interpreter is compiled, and
// says why that is not kept; code that is there is used all the same.
func TestNoScratch(t *testing.T) {
	c := newCacheTest(t)
	c.config.ScratchDir = filepath.Join(t.TempDir(), "none")
	if c.opened() {
		t.Error("compiled although the code was there")
	}
	var unkept error
	c.config.CacheDir = t.TempDir()
	c.config.Progress = func(p Progress) { unkept = p.Unkept }
	m, err := Open(t.Context(), c.config)
	if err != nil {
		t.Fatal(err)
	}
	m.Close(t.Context())
	if !errors.Is(unkept, fs.ErrNotExist) {
		t.Errorf("got %v, want an error about %s", unkept, c.config.ScratchDir)
	}
}

package catalog

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// listForever makes the test executable list a server that never answers, in
// the directory that it names.
const listForever = "CATALOG_TEST_LIST_FOREVER_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(listForever); dir != "" {
		f := &fake{}
		f.add("git", func(ctx context.Context) (*Listing, error) {
			fmt.Println("listing")
			<-ctx.Done()
			return nil, ctx.Err()
		})
		_, _ = New(Config{Source: f, Dir: store.At(dir)}).Want(context.Background(), "git")
		return
	}
	goleak.VerifyTestMain(m)
}

// fake is a source of servers made of Go functions.
type fake struct {
	mu      sync.Mutex
	servers []Server
	list    map[string]func(ctx context.Context) (*Listing, error)
	asked   []string
	now     int // listings that are under way
	peak    int
}

func (f *fake) Servers() []Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.servers)
}

func (f *fake) List(ctx context.Context, name string) (*Listing, error) {
	f.mu.Lock()
	f.asked = append(f.asked, name)
	f.now++
	f.peak = max(f.peak, f.now)
	list := f.list[name]
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	return list(ctx)
}

func (f *fake) add(name string, list func(ctx context.Context) (*Listing, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == nil {
		f.list = map[string]func(context.Context) (*Listing, error){}
	}
	f.servers = append(f.servers, Server{Name: name, Alias: name, Key: "key-" + name})
	f.list[name] = list
}

// asks returns whom List asked since the last time.
func (f *fake) asks() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.asked)
	s := strings.Join(f.asked, " ")
	f.asked = nil
	return s
}

func has(tools ...string) func(context.Context) (*Listing, error) {
	return func(context.Context) (*Listing, error) {
		l := &Listing{Name: "impl", Version: "1"}
		for _, t := range tools {
			l.Tools = append(l.Tools, tool.Tool{Name: t, Alias: t, Description: "Does " + t + ".", InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
		return l, nil
	}
}

func slow(d time.Duration, tools ...string) func(context.Context) (*Listing, error) {
	return func(ctx context.Context) (*Listing, error) {
		select {
		case <-time.After(d):
			return has(tools...)(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func fails(ctx context.Context) (*Listing, error) {
	return nil, errors.New("npx: not found")
}

func open(t *testing.T, config Config) *Catalog {
	t.Helper()
	c := New(config)
	t.Cleanup(c.Close)
	return c
}

func found(hits []Hit) string {
	var names []string
	for _, h := range hits {
		names = append(names, h.Server.Name+"."+h.Tool.Name)
	}
	return strings.Join(names, " ")
}

func left(missing []Missing) string {
	var names []string
	for _, m := range missing {
		text := m.Server.Name
		if m.Failure != nil {
			text += ": " + m.Failure.Reason
		}
		names = append(names, text)
	}
	return strings.Join(names, ", ")
}

// TestWantOnce: who looked before a listing ended, and asks after it, is content.
func TestWantOnce(t *testing.T) {
	f := &fake{}
	f.add("git", has("log"))
	c := open(t, Config{Source: f, Dir: store.At(t.TempDir())})
	looked := time.Now()
	for range 2 {
		if err := c.list(t.Context(), f.Servers()[0], looked); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.asks(); got != "git" {
		t.Errorf("asked %q, want git once", got)
	}
	if err := c.list(t.Context(), f.Servers()[0], time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := f.asks(); got != "git" {
		t.Errorf("who looked after it: asked %q, want git once more", got)
	}
}

func TestWant(t *testing.T) {
	dir := store.At(t.TempDir())
	f := &fake{}
	f.add("bad", fails)
	f.add("git", has("log", "commit"))
	c := open(t, Config{Source: f, Dir: dir})
	for range 2 {
		e, err := c.Want(t.Context(), "git")
		if err != nil || e.Listing == nil || len(e.Listing.Tools) != 2 || e.Listed.IsZero() {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if got := f.asks(); got != "git" {
		t.Errorf("asked %q", got)
	}
	// One that fails is tried again by who asks, and its reason is kept.
	for n := 1; n <= 2; n++ {
		e, err := c.Want(t.Context(), "bad")
		if err == nil || e.Listing != nil || e.Failure == nil || e.Failure.Count != n || !strings.Contains(e.Failure.Reason, "not found") {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if got := f.asks(); got != "bad bad" {
		t.Errorf("asked %q", got)
	}
	if _, err := c.Want(t.Context(), "nope"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, ok := c.Entry("nope"); ok {
		t.Error("there is no such server")
	}
	hits, missing := c.Search(Query{Text: "commit"})
	if found(hits) != "git.commit" || left(missing) != "bad: npx: not found" {
		t.Errorf("%s; missing %s", found(hits), left(missing))
	}
	// Another program finds it all.
	other := open(t, Config{Source: f, Dir: dir})
	hits, missing = other.Search(Query{Text: "commit"})
	if found(hits) != "git.commit" || left(missing) != "bad: npx: not found" || f.asks() != "" {
		t.Errorf("%s; missing %s", found(hits), left(missing))
	}
	// And this one finds what another has learnt since.
	other.Learn("bad", must(has("good")(t.Context())))
	other.Close()
	hits, missing = c.Search(Query{Text: "good commit", Server: "bad"})
	if found(hits) != "bad.good" || len(missing) != 0 {
		t.Errorf("%s; missing %s", found(hits), left(missing))
	}
	if _, err := dir.Read(failureFile("key-bad"), 1000); !os.IsNotExist(err) {
		t.Errorf("the reason is still kept: %v", err)
	}
}

func must(l *Listing, err error) *Listing {
	if err != nil {
		panic(err)
	}
	return l
}

func TestWithoutAPlace(t *testing.T) {
	f := &fake{}
	f.add("bad", fails)
	f.add("git", has("log"))
	c := open(t, Config{Source: f})
	if _, err := c.Want(t.Context(), "bad"); err == nil {
		t.Error("it listed")
	}
	if e, err := c.Want(t.Context(), "git"); err != nil || e.Listing == nil {
		t.Errorf("%+v %v", e, err)
	}
	c.drop()
	if hits, missing := c.Search(Query{Text: "log"}); found(hits) != "git.log" || left(missing) != "bad: npx: not found" {
		t.Errorf("%s; missing %s", found(hits), left(missing))
	}
}

func TestRefreshOff(t *testing.T) {
	f := &fake{}
	f.add("git", has("log"))
	c := open(t, Config{Source: f, Refresh: Off})
	c.Start()
	if _, err := c.Want(t.Context(), "git"); !errors.Is(err, ErrNotListed) || f.asks() != "" {
		t.Error(err)
	}
	c.Learn("git", must(has("log")(t.Context())))
	c.Learn("gone", must(has("log")(t.Context())))
	c.Close() // waits
	if e, err := c.Want(t.Context(), "git"); err != nil || e.Listing == nil {
		t.Errorf("%+v %v", e, err)
	}
}

func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("silent", slow(time.Hour))
		c := New(Config{Source: f, Timeout: 90 * time.Second})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Want(ctx, "silent"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		// The listing goes on; two callers share it.
		began := time.Now()
		_, err := c.Want(t.Context(), "silent")
		if err == nil || !strings.Contains(err.Error(), "did not list its tools within 1m30s") || time.Since(began) != 80*time.Second || f.asks() != "silent" {
			t.Error(err, time.Since(began))
		}
	})
}

func TestCloseEndsListings(t *testing.T) {
	f := &fake{}
	f.add("silent", slow(time.Hour))
	dir := store.At(t.TempDir())
	c := New(Config{Source: f, Dir: dir})
	c.Start()
	asked := make(chan error)
	go func() {
		_, err := c.Want(context.Background(), "silent")
		asked <- err
	}()
	for f.asks() == "" {
		time.Sleep(time.Millisecond)
	}
	c.Close()
	c.Close()
	if err := <-asked; err == nil {
		t.Error("it listed")
	}
	if _, err := c.List(t.Context(), "silent"); err == nil {
		t.Error("a closed catalog listed")
	}
	// That the program ended is no fault of the server.
	if e, _ := open(t, Config{Source: f, Dir: dir}).Entry("silent"); e.Failure != nil {
		t.Errorf("kept %+v", e.Failure)
	}
}

// TestTwoPrograms: of several that want to know, one asks.
func TestTwoPrograms(t *testing.T) {
	dir := store.At(t.TempDir())
	f := &fake{}
	f.add("git", slow(300*time.Millisecond, "log"))
	var all sync.WaitGroup
	for range 4 {
		c := open(t, Config{Source: f, Dir: dir})
		all.Go(func() {
			if e, err := c.Want(t.Context(), "git"); err != nil || e.Listing == nil {
				t.Errorf("%+v %v", e, err)
			}
		})
	}
	all.Wait()
	if got := f.asks(); got != "git" {
		t.Errorf("asked %q", got)
	}
	// Who insists does ask.
	if _, err := open(t, Config{Source: f, Dir: dir}).List(t.Context(), "git"); err != nil || f.asks() != "git" {
		t.Error(err)
	}
}

// TestProgramThatDiesWhileItLists: nobody waits for the dead.
func TestProgramThatDiesWhileItLists(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), listForever+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listing\n" {
		t.Fatal(line, err)
	}
	f := &fake{}
	f.add("git", has("log"))
	c := open(t, Config{Source: f, Dir: store.At(dir)})
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Want(soon, "git"); !errors.Is(err, context.DeadlineExceeded) || f.asks() != "" {
		t.Errorf("beside one that lists: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if e, err := c.Want(t.Context(), "git"); err != nil || e.Listing == nil || f.asks() != "git" {
		t.Errorf("after its death: %+v %v", e, err)
	}
}

func TestBrokenFiles(t *testing.T) {
	dir := store.At(t.TempDir())
	f := &fake{}
	f.add("git", has("log"))
	for _, content := range []string{"", "{", "[]", "null", `{"format":1}`, `{"format":7,"listing":{}}`, `{"format":1,"listing":{"tools":7}}`, "\x00"} {
		for _, name := range []string{listingFile("key-git"), failureFile("key-git")} {
			if err := dir.Write(name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		var logged strings.Builder
		c := open(t, Config{Source: f, Dir: dir, Log: logTo(&logged)})
		if _, missing := c.Search(Query{Text: "log"}); left(missing) != "git" {
			t.Errorf("%q: missing %s", content, left(missing))
		}
		if !strings.Contains(logged.String(), "not usable") {
			t.Errorf("%q: logged %q", content, logged.String())
		}
		if e, err := c.Want(t.Context(), "git"); err != nil || e.Listing == nil || f.asks() != "git" {
			t.Errorf("%q: %+v %v", content, e, err)
		}
		if hits, _ := open(t, Config{Source: f, Dir: dir}).Search(Query{Text: "log"}); found(hits) != "git.log" {
			t.Errorf("%q: not made anew", content)
		}
	}
	// What a crash left of a write is no file.
	if err := os.WriteFile(dir.Path(".tmp-123"), []byte(`{"format":1,"li`), 0o600); err != nil {
		t.Fatal(err)
	}
	if hits, _ := open(t, Config{Source: f, Dir: dir}).Search(Query{Text: "log"}); found(hits) != "git.log" {
		t.Error("lost by a crash of somebody else")
	}
}

// TestBackgroundMendsABrokenFile: also one whose age is right.
func TestBackgroundMendsABrokenFile(t *testing.T) {
	dir := store.At(t.TempDir())
	f := &fake{}
	f.add("git", has("log"))
	if err := dir.Write(listingFile("key-git"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	c := open(t, Config{Source: f, Dir: dir, Quiet: time.Millisecond})
	c.Search(Query{Text: "log"})
	c.Start()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if hits, _ := c.Search(Query{Text: "log"}); found(hits) == "git.log" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it stays broken")
		}
	}
}

func TestUnwritablePlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	f.add("git", has("log"))
	var logged strings.Builder
	c := open(t, Config{Source: f, Dir: store.At(file).Sub("catalog"), Log: logTo(&logged)})
	if e, err := c.Want(t.Context(), "git"); err != nil || e.Listing == nil {
		t.Errorf("%+v %v", e, err)
	}
	if !strings.Contains(logged.String(), "cannot be written") {
		t.Errorf("logged %q", logged.String())
	}
}

// TestTrouble: another process finds the last failure, which a list does not remove.
func TestTrouble(t *testing.T) {
	f := &fake{}
	f.add("git", func(context.Context) (*Listing, error) { return &Listing{}, nil })
	config := Config{Source: f, Dir: store.At(t.TempDir())}
	c := open(t, config)
	if got := c.LastTrouble("git"); got != nil {
		t.Errorf("got %v, want none", got)
	}
	c.Trouble("git", errors.New("first"))
	c.Trouble("git", errors.New("ENOSPC"))
	c.Trouble("none", errors.New("x"))
	other := open(t, config)
	if _, err := other.List(t.Context(), "git"); err != nil {
		t.Fatal(err)
	}
	if got := other.LastTrouble("git"); got == nil || got.Reason != "ENOSPC" || time.Since(got.At) > time.Hour {
		t.Errorf("got %+v, want the last one", got)
	}
	if got := other.LastTrouble("none"); got != nil {
		t.Errorf("an unknown server: got %v, want none", got)
	}
}

func TestSweep(t *testing.T) {
	dir := store.At(t.TempDir())
	old := time.Now().Add(-2 * unused)
	for _, name := range []string{"a.json", "a.failed.json", "b.json", "b.failed.json", "c.json", "key"} {
		if err := dir.Write(name, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if name != "c.json" {
			if err := os.Chtimes(dir.Path(name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	files{dir}.sweep(map[string]bool{"a": true}, time.Now())
	if names, err := dir.List(); strings.Join(names, " ") != "a.failed.json a.json c.json key" || err != nil {
		t.Error(names, err)
	}
}

func TestSecret(t *testing.T) {
	dir := store.At(t.TempDir()).Sub("catalog")
	var all sync.WaitGroup
	keys := make([]string, 8)
	for i := range keys {
		all.Go(func() {
			key, err := Secret(dir)
			if err != nil || len(key) != 32 {
				t.Error(key, err)
			}
			keys[i] = string(key)
		})
	}
	all.Wait()
	if len(slices.Compact(keys)) != 1 {
		t.Error("several keys")
	}
	if key, err := Secret(store.At("")); err != nil || len(key) != 32 {
		t.Error(key, err)
	}
}

// FuzzFile: whatever lies in the place of a file, the catalog goes on.
func FuzzFile(f *testing.F) {
	for _, content := range []string{
		"", "{", `{"format":1,"listing":{"tools":[{"name":"a","alias":"a","inputSchema":{"properties":{"x":{"$ref":"#"}}}}]},"listed":"2026-01-01T00:00:00Z"}`,
		`{"format":1,"failure":{"reason":"x","count":-1}}`, `{"format":1,"listing":{"tools":null,"prompts":[{"name":"\u202e"}]}}`,
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := store.At(t.TempDir())
		for _, name := range []string{listingFile("key-git"), failureFile("key-git")} {
			if err := dir.Write(name, content); err != nil {
				t.Fatal(err)
			}
		}
		source := &fake{}
		source.add("git", has("log"))
		c := New(Config{Source: source, Dir: dir})
		defer c.Close()
		for _, e := range c.Entries() {
			if e.Listing != nil && len(e.Listing.Tools) > maxTools {
				t.Errorf("%d tools", len(e.Listing.Tools))
			}
		}
		c.Search(Query{Text: "log a"})
		if e, err := c.List(t.Context(), "git"); err != nil || len(e.Listing.Tools) != 1 || e.Failure != nil {
			t.Errorf("%+v %v", e, err)
		}
	})
}

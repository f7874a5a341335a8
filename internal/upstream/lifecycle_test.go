//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/remote"
	"github.com/sallyport/sallyport/internal/upstream/secret"
)

// TestPoolOfProcesses: busy servers get company, up to their number, and each
// of them is ended.
func TestPoolOfProcesses(t *testing.T) {
	connections := func(name string) int {
		if name == "many" {
			return 3
		}
		return 1
	}
	m := manage(t, Options{Connections: connections}, define(t, "many", "sdk"), define(t, "one", "sdk"))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	hold := func(name string) *Server {
		s := running(t, m, name)
		before := s.inFlight.Load()
		wg.Go(func() {
			if _, err := s.CallTool(ctx, "sleep", json.RawMessage(`{"MS":600000}`)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		waitFor(t, func() bool { return s.inFlight.Load() > before })
		return s
	}
	count := func(name string) (n int) {
		for _, s := range m.Running() {
			if s.Definition().Name == name {
				n++
			}
		}
		return n
	}
	seen := map[*Server]bool{}
	for want := 1; want <= 3; want++ {
		s := hold("many")
		if seen[s] {
			t.Errorf("call %d went to a busy process", want)
		}
		seen[s] = true
		// Asking while all are busy begins one more, until there are enough.
		running(t, m, "many")
		waitFor(t, func() bool { return count("many") == min(want+1, 3) })
	}
	if s := hold("many"); !seen[s] {
		t.Error("a fourth process was started")
	}
	first := hold("one")
	if second := running(t, m, "one"); second != first || count("one") != 1 {
		t.Error("a server with one connection got two")
	}
	cancel()
	wg.Wait()
	// One that dies is not handed out again.
	for s := range seen {
		_, _ = s.CallTool(t.Context(), "exit", nil)
		break
	}
	for range 5 {
		if !running(t, m, "many").Alive() {
			t.Error("a dead process was handed out")
		}
	}
}

// TestAStalledServerIsEnded: one that answers neither calls nor pings makes
// room for a new one.
func TestAStalledServerIsEnded(t *testing.T) {
	def := define(t, "x", "deaf")
	def.CallTimeout = 50 * time.Millisecond
	m := manage(t, Options{Ping: 100 * time.Millisecond}, def)
	s := running(t, m, "x")
	if _, err := s.CallTool(t.Context(), "silence", nil); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
	waitFor(t, func() bool { return !s.Alive() })
	if again := running(t, m, "x"); again == s {
		t.Error("the stalled server was handed out")
	}

	// One that lives, and was only slow with that call, goes on.
	slow := define(t, "slow", "sdk")
	slow.CallTimeout = 50 * time.Millisecond
	m = manage(t, Options{Ping: 30 * time.Second}, slow)
	s = running(t, m, "slow")
	if _, err := s.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":600000}`)); !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	waitFor(t, func() bool { return !s.suspected.Load() })
	if !s.Alive() || running(t, m, "slow") != s {
		t.Error("a server that answers pings was ended")
	}
}

func TestTimeoutOfACall(t *testing.T) {
	def := define(t, "x", "sdk")
	def.CallTimeout = 30 * time.Millisecond
	m := manage(t, Options{}, def)
	s := running(t, m, "x")
	_, err := s.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":600000}`))
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "no answer within 30ms") {
		t.Error(err)
	}
	waitFor(t, func() bool { return strings.Contains(s.Diagnosis().Stderr, "sleep was cancelled") })
}

func TestTimeoutOfAStart(t *testing.T) {
	def := define(t, "x", "silent")
	def.StartTimeout = 100 * time.Millisecond
	m := manage(t, Options{StartTimeout: time.Hour}, def)
	if _, err := m.Server(t.Context(), "x"); !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "within 100ms") {
		t.Error(err)
	}
}

// TestLastWordsOfASlowStart: who stops waiting is told what the server has said
// so far, and it goes on starting.
func TestLastWordsOfASlowStart(t *testing.T) {
	m := manage(t, Options{}, define(t, "slow", "silent-with-words", "SECRET=hunter2"))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		e := m.set.Load().slots["slow"].entry
		waitFor(t, func() bool {
			e.mu.Lock()
			a := e.starting
			e.mu.Unlock()
			if a == nil {
				return false
			}
			s := a.program.Load()
			return s != nil && strings.Contains(string(s.conn.(*program).proc.Stderr()), "hunter2\n")
		})
		cancel(timeoutError{time.Second})
	}()
	_, err := m.Server(ctx, "slow")
	if !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %v, want %v", err, ErrTimeout)
	}
	if got, want := err.Error(), "no answer within 1s; its last output:\n  waiting for a licence, with "; !strings.Contains(got, want) {
		t.Errorf("got %q, want in it %q", got, want)
	}
	if got := err.Error(); strings.Contains(got, "hunter2") {
		t.Errorf("got %q, want no secret in it", got)
	}
}

func TestProgress(t *testing.T) {
	for _, def := range []Definition{
		define(t, "stdio", "sdk"),
		define(t, "stdio, stateless", "sdk", "VERSIONS=2026-07-28"),
		over("http", sdkHTTP(t, "stateful", "2025-11-25").URL, definitions.Auto),
		over("http, stateless", sdkHTTP(t, "stateless", "2026-07-28").URL, definitions.Auto),
		over("sse", sdkHTTP(t, "sse", "2024-11-05").URL, definitions.Auto),
	} {
		t.Run(def.Name, func(t *testing.T) {
			m := manage(t, Options{}, def)
			s := running(t, m, def.Name)
			host := &fakeHost{}
			_, err := s.CallTool(WithHost(t.Context(), host), "count", nil)
			_, got, _ := host.heard()
			if err != nil || len(got) != 3 || got[2] != (Progress{Progress: 3, Total: 3, Message: "step 3"}) {
				t.Error(got, err)
			}
			if _, err := s.CallTool(t.Context(), "count", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDockerAsAServer: docker is a program like others, and gets what it needs.
func TestDockerAsAServer(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	// A double of docker: it is the server that it would run in a container.
	script := `#!/bin/sh
echo "double of docker: $*" >&2
case "$*" in
"run -i --rm -e UPSTREAM_TEST_ROLE=sdk mcp/some:latest" | "mcp gateway run --servers=duckduckgo")
	UPSTREAM_TEST_ROLE=sdk exec "` + exe + `" ;;
esac
exit 125
`
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"PATH=" + bin + ":/usr/bin:/bin", "HOME=/home/me", "DOCKER_HOST=unix:///run/user/1/docker.sock", "DOCKER_CONTEXT=rootless",
		"DOCKER_CONFIG=/home/me/.docker", "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=/c", "XDG_RUNTIME_DIR=/run/user/1", "API_KEY=s3cret",
	}
	for name, args := range map[string][]string{
		"run":     {"run", "-i", "--rm", "-e", "UPSTREAM_TEST_ROLE=sdk", "mcp/some:latest"},
		"gateway": {"mcp", "gateway", "run", "--servers=duckduckgo"},
	} {
		m := manage(t, Options{Environ: environ}, definitions.New(name, "", definitions.Launch{Command: "docker", Args: args}))
		s := running(t, m, name)
		got := text(t, must(t)(s.CallTool(t.Context(), "environment", nil)))
		for _, want := range environ[1:8] {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s is missing in\n%s", name, want, got)
			}
		}
		if strings.Contains(got, "s3cret") {
			t.Error("a key of ours was given away")
		}
		waitFor(t, func() bool {
			return strings.Contains(s.Diagnosis().Stderr, "double of docker: "+strings.Join(args, " "))
		})
	}
	m := manage(t, Options{Environ: environ}, definitions.New("wrong", "", definitions.Launch{Command: "docker", Args: []string{"run", "nothing"}}))
	if _, err := m.Server(t.Context(), "wrong"); err == nil || !strings.Contains(err.Error(), "exit status 125; its last output:\n  double of docker: run nothing") {
		t.Error(err)
	}
}

// TestTokens: what a server wants is read right before a start, sent, and said
// nowhere.
func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := sdkHTTP(t, "json", "2025-11-25")
	inner := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer right-t0ken":
			inner.ServeHTTP(w, r)
		case "Bearer known-t0ken":
			http.Error(w, "known-t0ken may not", http.StatusForbidden)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://x/.well-known"`)
			http.Error(w, "not "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		}
	})
	logged := new(logBuffer)
	def := func(header string) Definition {
		entry := fmt.Sprintf(`{"url":%q,"headers":{"Authorization":%q}}`, server.URL, header)
		if header == "" {
			entry = fmt.Sprintf(`{"url":%q}`, server.URL)
		}
		d, err := definitions.Parse("x", json.RawMessage(entry), definitions.Options{}, true)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	start := func(header string) (*Server, error) {
		secrets := secret.Reader{Keyring: func(service, account string) (string, error) {
			if service+" "+account != "sallyport x" {
				return "", errors.New("no such entry")
			}
			return "right-t0ken", nil
		}}
		return manage(t, Options{Log: logged.logger(), Secrets: secrets.Read}, def(header)).Server(t.Context(), "x")
	}
	write("right-t0ken")
	for _, header := range []string{"Bearer right-t0ken", "Bearer ${file:" + file + "}", "Bearer ${keyring:x}"} {
		s, err := start(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CallTool(t.Context(), "echo", nil); err != nil {
			t.Error(err)
		}
	}
	write("wrong-t0ken")
	for header, want := range map[string]string{
		"Bearer ${file:" + file + "}": "the server wants authorization (server/discover: HTTP status 401 Unauthorized: not ",
		"Bearer known-t0ken":          "the server does not accept our credentials (server/discover: HTTP status 403",
		"Bearer ${file:/none/here}":   "${file:/none/here}: ",
		"Bearer ${keyring:other}":     "${keyring:other}: the keyring cannot be used",
	} {
		_, err := start(header)
		if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%s: %v", header, err)
		}
		var status *remote.StatusError
		if errors.As(err, &status) != errors.Is(err, ErrUnauthorized) {
			t.Error(err)
		}
		if cause := Cause(err); strings.Contains(cause, "t0ken") {
			t.Errorf("%s: code reads %s", header, cause)
		}
	}
	if _, err := start("Bearer no"); !strings.Contains(err.Error(), "does not accept the Authorization header of the definition") {
		t.Error(err)
	}
	if _, err := start(""); !strings.Contains(err.Error(), "give it a token in its definition") || !strings.Contains(err.Error(), "${keyring:NAME}") {
		t.Error(err)
	}
	if strings.Contains(logged.String(), "t0ken") {
		t.Error("a token was logged")
	}
}

// TestAServerThatGoesAwayOverHTTP: the call fails, and the next one succeeds
// when the server is back.
func TestAServerThatGoesAwayOverHTTP(t *testing.T) {
	server := sdkHTTP(t, "stateful", "2025-11-25")
	inner := server.Config.Handler
	var away sync.Map
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := away.Load("now"); ok {
			panic(http.ErrAbortHandler)
		}
		inner.ServeHTTP(w, r)
	})
	m := manage(t, Options{}, over("x", server.URL, definitions.Auto), define(t, "other", "sdk"))
	s := running(t, m, "x")
	away.Store("now", true)
	if _, err := s.CallTool(t.Context(), "echo", nil); !errors.Is(err, ErrGone) || !IsGone(err) {
		t.Error(err)
	}
	if _, err := running(t, m, "other").CallTool(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	away.Delete("now")
	if _, err := running(t, m, "x").CallTool(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
}

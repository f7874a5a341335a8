//go:build unix

package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// The official SDK's server as the oracle: what its own client gets from it,
// ours gets too, and more exactly.
func TestAgainstTheSDK(t *testing.T) {
	def := define(t, "sdk", "sdk", "TOOLS=30", "PAGE=7")
	m := manage(t, Options{}, def)
	s := running(t, m, "sdk")

	cmd := exec.Command(def.Launch().Command)
	cmd.Env = append(cmd.Environ(), roleVariable+"=sdk", "TOOLS=30", "PAGE=7")
	client := mcp.NewClient(&mcp.Implementation{Name: "oracle", Version: "1"}, nil)
	oracle, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = oracle.Close() }()

	tools, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for want, err := range oracle.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(tools) {
			t.Fatalf("only %d tools", i)
		}
		got := tools[i]
		schema, _ := json.Marshal(want.InputSchema)
		if got.Name != want.Name || got.Description != want.Description || !sameJSON(t, got.InputSchema, schema) {
			t.Errorf("tool %d: %+v, want %+v", i, got, want)
		}
		if !bytes.Contains(got.InputSchema, []byte("9007199254740993")) {
			t.Errorf("the schema lost its integer: %s", got.InputSchema)
		}
		i++
	}
	if i != len(tools) || i != 39 {
		t.Errorf("%d tools, want %d", len(tools), i)
	}

	for _, call := range []struct{ tool, args string }{
		{"echo", `{"zebra":1,"apple":"x\ny é"}`}, {"echo", `{}`}, {"fail", `{}`}, {"nonexistent", `{}`}, {"sleep", `{"MS":1}`}, {"sleep", `{"MS":"x"}`},
	} {
		got, gotErr := s.CallTool(t.Context(), call.tool, json.RawMessage(call.args))
		want, wantErr := oracle.CallTool(t.Context(), &mcp.CallToolParams{Name: call.tool, Arguments: json.RawMessage(call.args)})
		if (gotErr == nil) != (wantErr == nil) {
			t.Errorf("%s(%s): %v, want %v", call.tool, call.args, gotErr, wantErr)
			continue
		}
		if gotErr != nil {
			var ours *jsonrpc.Error
			if !errors.As(gotErr, &ours) {
				t.Errorf("%s(%s): %v", call.tool, call.args, gotErr)
			}
			continue
		}
		wantRaw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, got, wantRaw) {
			t.Errorf("%s(%s): %s, want %s", call.tool, call.args, got, wantRaw)
		}
	}
	if info := s.Info(); info.Server.Name != "sdk" || info.Server.Version != "1.2.3" || info.ProtocolVersion != "2025-11-25" || info.Instructions != "use it well" {
		t.Errorf("%+v", info)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

func TestEras(t *testing.T) {
	tests := []struct {
		role    string
		env     []string
		version string
		err     string
	}{
		{"sdk", nil, "2025-11-25", ""},
		{"sdk", []string{"VERSIONS=2024-11-05"}, "2024-11-05", ""},
		{"sdk", []string{"VERSIONS=2025-03-26"}, "2025-03-26", ""},
		{"sdk", []string{"VERSIONS=2025-06-18"}, "2025-06-18", ""},
		{"ancient", nil, "2024-11-05", ""},
		{"exits-on-discover", nil, "2025-11-25", ""},
		{"modern", nil, "2026-07-28", ""},
		{"modern-other-code", nil, "2026-07-28", ""},
		{"modern-exits", nil, "2026-07-28", ""},
		{"modern-answers-version", nil, "2026-07-28", ""},
		{"modern-silent", nil, "2026-07-28", ""},
		{"modern-deaf-to-listen", nil, "2026-07-28", ""},
		{"unknown-version", nil, "", `protocol version "1999-01-01" is not supported`},
		{"string-ids", nil, "2025-11-25", ""},
		{"says-little", nil, "2025-11-25", ""},
		{"mistyped", nil, "2025-11-25", ""},
		{"nonsense", nil, "", `answer is not valid: the result is not an object: "\"hello\""`},
		{"no-version", []string{"SECRET=s3cr3t-key"}, "", `protocol version "" is not supported: (20 bytes)`},
		{"refuses-all", []string{"SECRET=s3cr3t-key"}, "", "no key for ${SECRET} (error -32000)"},
	}
	for _, test := range tests {
		t.Run(test.role+strings.Join(test.env, ""), func(t *testing.T) {
			t.Parallel() // one mostly waits
			const patience = 5 * time.Second
			m := manage(t, Options{StartTimeout: patience}, define(t, "x", test.role, test.env...))
			// Twice: the second start uses what the first one learnt.
			for round := range 2 {
				began := time.Now()
				s, err := m.Server(t.Context(), "x")
				took := time.Since(began)
				if test.err != "" {
					if err == nil || !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), test.err) {
						t.Fatal(err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := s.Info().ProtocolVersion; got != test.version {
					t.Errorf("round %d: version %s", round, got)
				}
				if tools, err := s.Tools(t.Context()); err != nil || len(tools) == 0 {
					t.Errorf("%d tools, %v", len(tools), err)
				}
				if _, err := s.CallTool(t.Context(), "echo", nil); err != nil {
					t.Error(err)
				}
				if test.role == "modern-silent" && round == 1 && !testing.Short() && took >= patience {
					t.Errorf("the second start took %v: the era was not remembered", took)
				}
				if err := s.stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestModernServerOfTheSDK(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "sdk"))
	e := m.set.Load().slots["x"].entry
	e.era = eraStateless
	s := running(t, m, "x")
	if s.Info().ProtocolVersion != "2026-07-28" || s.Info().Server.Name != "sdk" {
		t.Fatalf("%+v", s.Info())
	}
	before, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, must(t)(s.CallTool(t.Context(), "echo", json.RawMessage(`{"a":9007199254740993}`)))); got != `{"a":9007199254740993}` {
		t.Error(got)
	}
	must(t)(s.CallTool(t.Context(), "grow", nil))
	waitFor(t, func() bool {
		after, err := s.Tools(t.Context())
		return err == nil && len(after) == len(before)+1
	})
}

func must(t *testing.T) func(json.RawMessage, error) json.RawMessage {
	return func(raw json.RawMessage, err error) json.RawMessage {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !what() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestToolsAreCachedUntilTheyChange(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: a list that lives for 20 ms must be read within them")
	}
	m := manage(t, Options{}, define(t, "sdk", "sdk"), define(t, "ttl", "ttl"), define(t, "h", "plain"))
	s := running(t, m, "sdk")
	first, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calls := s.Stats().Wire.Calls
	if again, err := s.Tools(t.Context()); err != nil || &again[0] != &first[0] || s.Stats().Wire.Calls != calls {
		t.Error("not cached", err)
	}
	must(t)(s.CallTool(t.Context(), "grow", nil))
	waitFor(t, func() bool {
		after, err := s.Tools(t.Context())
		return err == nil && len(after) == len(first)+1 && hasTool(after, "new_tool")
	})

	s = running(t, m, "ttl")
	if tools, _ := s.Tools(t.Context()); tools[0].Name != "t1" {
		t.Errorf("%v", tools)
	}
	time.Sleep(30 * time.Millisecond)
	if tools, _ := s.Tools(t.Context()); tools[0].Name != "t2" {
		t.Errorf("%v", tools)
	}

	// The notice arrives before the answer of the call that caused it.
	s = running(t, m, "h")
	for want := 1; want <= 5; want++ {
		if tools, err := s.Tools(t.Context()); err != nil || tools[0].Description != fmt.Sprintf("page %d", want) {
			t.Fatal(tools, err)
		}
		must(t)(s.CallTool(t.Context(), "changed", nil))
	}
}

func hasTool(tools []tool.Tool, alias string) bool {
	for _, tool := range tools {
		if tool.Alias == alias {
			return true
		}
	}
	return false
}

func TestListsOfTools(t *testing.T) {
	tests := []struct {
		role string
		env  []string
		n    int
		err  string
	}{
		{"sdk", []string{"TOOLS=5000", "PAGE=100"}, 5009, ""},
		{"cyclic-cursor", nil, 4, ""},
		{"endless-pages", nil, 0, ""},
		{"endless-tools", nil, maxTools, ""},
		{"no-tools", nil, 0, ""},
		{"cyclic-schema", nil, 1, ""},
		{"deep-schema", nil, 2, ""},
		{"large-tool", nil, 2, ""},
		{"null-tools", nil, 0, ""},
		{"named-tools", nil, 3, ""},
		{"bad-list", nil, 0, "tools is not a list"},
		{"bad-page", nil, 0, "without a list of tools"},
	}
	for _, test := range tests {
		t.Run(test.role, func(t *testing.T) {
			m := manage(t, Options{}, define(t, "x", test.role, test.env...))
			s := running(t, m, "x")
			tools, err := s.Tools(t.Context())
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatal(err)
			}
			if len(tools) != test.n {
				t.Errorf("%d tools, want %d", len(tools), test.n)
			}
			if _, err := s.CallTool(t.Context(), "echo", nil); err != nil {
				t.Errorf("the server is of no more use: %v", err)
			}
		})
	}
}

func TestOddTools(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "odd-tools"))
	tools, err := running(t, m, "x").Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tool := range tools {
		got = append(got, fmt.Sprintf("%s=%s %q %s %s", tool.Name, tool.Alias, tool.Title, tool.InputSchema, tool.OutputSchema))
	}
	want := `a=a "" {"type":"object"} |b=b "B" {"type":"object"} |class=class_ "" {"type":"object"} |Class=class_ "" {"type":"object"} `
	if strings.Join(got, "|") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "|"), want)
	}
}

// TestToolsThatAreTooLarge: one tool costs the others nothing, and the user reads what
// is left out of it.
func TestToolsThatAreTooLarge(t *testing.T) {
	for role, want := range map[string]struct{ tool, notes string }{
		"deep-schema": {
			`c true {"type":"object"} (what the tool says of itself nests 5003 levels deep, so its schema`,
			`what "c" says of itself nests 5003 levels deep: its schema is left out`,
		},
		"large-tool": {
			`d false {"type":"object"} (what the tool says of itself takes 10000026 bytes, so its schema`,
			`what "d" says of itself takes 10000026 bytes: its schema is left out`,
		},
	} {
		s := running(t, manage(t, Options{}, define(t, "x", role)), "x")
		tools, err := s.Tools(t.Context())
		if err != nil || len(tools) != 2 || tools[0].Name != "a" {
			t.Fatalf("%s: got %v, %v", role, tools, err)
		}
		last := tools[1]
		about := last.Description[strings.LastIndex(last.Description, "("):]
		if got := fmt.Sprintf("%s %t %s %s", last.Name, last.ReadOnly, last.InputSchema, about); !strings.HasPrefix(got, want.tool) || len(last.Raw) > 10_000 {
			t.Errorf("%s: got %s, want %s", role, got, want.tool)
		}
		if notes := strings.Join(s.LeftOut(), "|"); notes != want.notes {
			t.Errorf("%s: got the notes %s, want %s", role, notes, want.notes)
		}
	}
}

func TestRestrictedTools(t *testing.T) {
	def := define(t, "x", "sdk")
	def.AllowTools = []string{"echo", "fail"}
	def.DenyTools = []string{"fail"}
	m := manage(t, Options{}, def)
	s := running(t, m, "x")
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) != 1 || tools[0].Name != "echo" {
		t.Error(tools, err)
	}
}

func TestArguments(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "plain"))
	s := running(t, m, "x")
	for args, want := range map[string]string{
		"":                               `{}`,
		` {"b":1, "a":9007199254740993}`: `{"b":1, "a":9007199254740993}`,
		"{\n \"a\":\r\n 1.0}":            `{"a":1.0}`,
		"{\"a\":\"\xff\"}":               "{\"a\":\"\uFFFD\"}",
	} {
		got := strings.TrimSpace(text(t, must(t)(s.CallTool(t.Context(), "arguments", json.RawMessage(args)))))
		if got != want {
			t.Errorf("%q arrived as %q", args, got)
		}
	}
	for _, args := range []string{`[]`, `null`, `1`, `"x"`, `{`, `{} ` + "\n" + `{}`, `{},"name":"other"`, `{}}`, `{"a":1,}`} {
		if _, err := s.CallTool(t.Context(), "arguments", json.RawMessage(args)); !errors.Is(err, ErrInvalidArguments) {
			t.Errorf("%q: %v", args, err)
		}
	}
	// Names are data.
	for _, name := range []string{"a\"b", "a\nb", "\xff", "", `","arguments":{}`} {
		if _, err := s.CallTool(t.Context(), name, nil); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestHostileCalls(t *testing.T) {
	logged := new(logBuffer)
	m := manage(t, Options{Log: logged.logger(), MaxLine: 20 << 20}, define(t, "x", "chatty", "SECRET=s3cr3t-key"), define(t, "flood", "flood"))
	s := running(t, m, "x")
	fine := func() {
		t.Helper()
		for range 3 {
			if got := text(t, must(t)(s.CallTool(t.Context(), "anything", nil))); got != "ok" {
				t.Error(got)
			}
		}
	}
	for _, tool := range []string{"duplicate", "wrong-id", "garbage"} {
		if got := text(t, must(t)(s.CallTool(t.Context(), tool, nil))); got != "ok" {
			t.Errorf("%s: %s", tool, got)
		}
		fine()
	}
	if got := text(t, must(t)(s.CallTool(t.Context(), "big", json.RawMessage(`{"MB":10}`)))); len(got) != 10<<20 {
		t.Errorf("%d bytes", len(got))
	}
	if _, err := s.CallTool(t.Context(), "big", json.RawMessage(`{"MB":100}`)); !errors.Is(err, jsonrpc.ErrTooLarge) || !strings.Contains(err.Error(), "20971520 are allowed") {
		t.Error(err)
	}
	fine()
	for tool, want := range map[string]string{"not-json": `not valid JSON, near "NaN" (byte `, "not-json-secret": "not valid JSON (byte "} {
		if _, err := s.CallTool(t.Context(), tool, nil); !errors.Is(err, ErrBadAnswer) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "3cr3t") {
			t.Errorf("%s: %v", tool, err)
		}
	}
	fine()
	if _, err := s.CallTool(t.Context(), "not-an-object", nil); !errors.Is(err, ErrBadAnswer) {
		t.Error(err)
	}
	if _, err := s.CallTool(t.Context(), "error", nil); err == nil || !strings.Contains(err.Error(), "bad argument near ${SECRET} (error -32602)") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.CallTool(ctx, "silence", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	fine()
	st := s.Stats()
	if st.Wire.Unknown != 3 || st.Wire.Overlong != 1 || st.Wire.Junk != 8 || st.Wire.Requests != 3 || st.InFlight != 0 || st.Failed != 6 {
		t.Errorf("%+v", st)
	}
	if d := s.Diagnosis(); !strings.HasPrefix(d.Stdout, "Starting server…\n{not json}\n") || strings.Contains(d.Stderr, "broken input") {
		t.Errorf("%+v", d)
	}
	s = running(t, m, "flood")
	fine()
	waitFor(t, func() bool { return len(processOf(s).Stderr()) == 64<<10 })
	fine()
	if strings.Contains(logged.String(), "s3cr3t") {
		t.Error("a secret was logged")
	}
}

func TestInputRequired(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "modern"))
	s := running(t, m, "x")
	if _, err := s.CallTool(t.Context(), "ask", nil); !errors.Is(err, ErrInputRequired) {
		t.Error(err)
	}
}

func TestCallTimeout(t *testing.T) {
	m := manage(t, Options{CallTimeout: 50 * time.Millisecond}, define(t, "x", "sdk"))
	s := running(t, m, "x")
	_, err := s.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":60000}`))
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Error(err)
	}
	// The cancellation reached the server.
	waitFor(t, func() bool { return strings.Contains(s.Diagnosis().Stderr, "sleep was cancelled") })
}

// A missing answer may be in a line that is not a message.
func TestTimeoutsShowStrayLines(t *testing.T) {
	const want = `; lines on its standard output that are not messages of the protocol: 1, the last "`
	m := manage(t, Options{CallTimeout: time.Second, StartTimeout: time.Second}, define(t, "x", "hostile"), define(t, "y", "talks"))
	s := running(t, m, "x")
	if _, err := s.CallTool(t.Context(), "talk", nil); !errors.Is(err, ErrTimeout) || !strings.HasSuffix(err.Error(), want+`Result: 42"`) {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := s.CallTool(t.Context(), "silence", nil); !errors.Is(err, ErrTimeout) || strings.Contains(err.Error(), "standard output") {
		t.Errorf("got %v, want no line of an earlier call", err)
	}
	if _, err := m.Server(t.Context(), "y"); !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), want+`Listening on port 80"`) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestDeathInTheMiddleOfACall(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "plain"), define(t, "other", "sdk"), define(t, "sdk", "sdk", "SECRET=s3cr3t-key"))
	other := running(t, m, "other")
	long := make(chan error, 1)
	go func() {
		_, err := other.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":1500}`))
		long <- err
	}()
	s := running(t, m, "x")
	_, err := s.CallTool(t.Context(), "die", nil)
	if !errors.Is(err, ErrGone) || !IsGone(err) || !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), "last words") {
		t.Error(err)
	}
	if _, err := s.CallTool(t.Context(), "anything", nil); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	// Asked again, it is there again.
	again := running(t, m, "x")
	if again == s {
		t.Fatal("the dead server was handed out")
	}
	if got := text(t, must(t)(again.CallTool(t.Context(), "anything", nil))); got != "ok" {
		t.Error(got)
	}
	_, err = again.CallTool(t.Context(), "half-an-answer", nil)
	if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "exit status 0") {
		t.Error(err)
	}
	_, err = running(t, m, "sdk").CallTool(t.Context(), "exit", nil)
	if want := "MCP server \"sdk\", tools/call exit: has ended: exit status 7; its last output:\n  going down with ${SECRET}"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	if err := <-long; err != nil {
		t.Errorf("a call to another server: %v", err)
	}
}

func TestParallelCalls(t *testing.T) {
	m := manage(t, Options{}, define(t, "x", "sdk"))
	s := running(t, m, "x")
	began := time.Now()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if _, err := s.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":500}`)); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	// One after the other they would take 50 s at least, on any machine.
	if took := time.Since(began); took > 40*time.Second {
		t.Errorf("100 calls of 500 ms took %v", took)
	}
}

func TestEnvironmentOfAServer(t *testing.T) {
	environ := []string{"HOME=/h", "PATH=/p", "LC_ALL=C", "XDG_CONFIG_HOME=/x", "HTTPS_PROXY=http://p", "AWS_SECRET_ACCESS_KEY=no", "OPENAI_API_KEY=no",
		"SSH_AUTH_SOCK=/no", "MINE=yes", "MY_ONE=yes", "MY_TWO=yes", "SHELL=() { x; }", "SALLYPORT_DEPTH=1", "=C:=C:\\", "broken"}
	m := manage(t, Options{Environ: environ, Inherit: []string{"MINE", "MY_*"}}, define(t, "x", "sdk", "PATH=/own", "SALLYPORT_DEPTH=0"))
	got := text(t, must(t)(running(t, m, "x").CallTool(t.Context(), "environment", nil)))
	want := "HOME=/h\nHTTPS_PROXY=http://p\nLC_ALL=C\nMINE=yes\nMY_ONE=yes\nMY_TWO=yes\nPATH=/own\nSALLYPORT_DEPTH=2\nTERM=dumb\n" + roleVariable + "=sdk\nXDG_CONFIG_HOME=/x"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

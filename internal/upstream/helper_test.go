//go:build unix

package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// roleVariable makes the test binary a server: "sdk" is one of the official
// SDK, anything else a script of hostileServer.
const roleVariable = "UPSTREAM_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		// A session of the SDK's own server sometimes ends late.
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
	case "sdk":
		if err := sdkServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, "sdk server:", err)
			os.Exit(1)
		}
	case "line-echo":
		lineEcho(bufio.NewReader(os.Stdin))
	case "fast":
		fastServer(bufio.NewReader(os.Stdin))
	case "asking":
		(&askingServer{in: bufio.NewReader(os.Stdin), waiting: map[string]chan json.RawMessage{}}).run()
	default:
		(&hostileServer{role: role, in: bufio.NewReaderSize(os.Stdin, 1<<20)}).run()
	}
}

func intVariable(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return fallback
}

// sdkServer is a server made with the official SDK.
func sdkServer() *mcp.Server {
	opts := &mcp.ServerOptions{Instructions: "use it well", PageSize: intVariable("PAGE", 1000)}
	if v := os.Getenv("VERSIONS"); v != "" {
		opts.SupportedProtocolVersions = strings.Split(v, ",")
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1.2.3"}, opts)
	schema := json.RawMessage(`{"type":"object","properties":{"zebra":{"type":"integer","maximum":9007199254740993},"apple":{"type":"string"}}}`)
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	add := func(name string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, Description: "does " + name, InputSchema: schema}, h)
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(string(r.Params.Arguments)), nil
	})
	add("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r := text("it failed")
		r.IsError = true
		return r, nil
	})
	add("sleep", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args struct{ MS int }
		if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(args.MS) * time.Millisecond):
			return text("slept"), nil
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, "sleep was cancelled")
			return nil, ctx.Err()
		}
	})
	add("grow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		add("new-tool", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("new"), nil })
		return text("grown"), nil
	})
	add("count", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		token := r.Params.GetProgressToken()
		for i := 1; i <= 3 && token != nil; i++ {
			note := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i), Total: 3, Message: fmt.Sprintf("step %d", i)}
			if err := r.Session.NotifyProgress(ctx, note); err != nil {
				return nil, err
			}
		}
		return text("counted"), nil
	})
	add("environment", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(strings.Join(os.Environ(), "\n")), nil
	})
	add("directory", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		dir, err := os.Getwd()
		return text(dir), err
	})
	add("say", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, string(r.Params.Arguments))
		return text("said"), nil
	})
	add("exit", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "going down with "+os.Getenv("SECRET"))
		os.Exit(7)
		return nil, nil
	})
	for i := range intVariable("TOOLS", 0) {
		add(fmt.Sprintf("tool-%d", i), func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
	}
	return s
}

// hostileServer does what servers should not.
type hostileServer struct {
	role string
	in   *bufio.Reader
	mu   sync.Mutex
	page int
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name            string          `json:"name"`
		Arguments       json.RawMessage `json:"arguments"`
		ProtocolVersion string          `json:"protocolVersion"`
		Meta            map[string]any  `json:"_meta"`
	} `json:"params"`
}

func (h *hostileServer) print(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

func (h *hostileServer) answer(r request, result string) {
	h.print(`{"result":%s,"jsonrpc":"2.0","id":%s}`, result, r.ID)
}

func (h *hostileServer) refuse(r request, code int, message string) {
	h.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, r.ID, code, message)
}

// stay does not come back. An empty select would end an executable without
// cgo, in which the runtime sees that nothing else can run.
func stay() {
	for {
		time.Sleep(time.Hour)
	}
}

func (h *hostileServer) run() {
	switch h.role {
	case "dies-at-start":
		fmt.Fprintln(os.Stderr, "\x1b[31mError:\x1b[0m the key "+os.Getenv("SECRET")+" is wrong")
		os.Exit(3)
	case "says-goodbye-on-stdout":
		fmt.Println("usage: server --port N")
		return
	case "silent-with-words":
		fmt.Fprintln(os.Stderr, "\x1b[31mwaiting\x1b[0m for a licence, with "+os.Getenv("SECRET"))
		stay()
	case "silent":
		stay()
	case "closes-stdout":
		_ = os.Stdout.Close()
		stay()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	case "slow-start":
		time.Sleep(300 * time.Millisecond)
	case "chatty":
		fmt.Println("Starting server…\n\n{not json}\n[1,2\n\"text\"\n12")
		h.print(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}`)
		h.print(`{"jsonrpc":"2.0","id":"p1","method":"ping"}`)
		h.print(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		h.print(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`)
	case "flood":
		go func() {
			line := bytes.Repeat([]byte("flood of standard error "), 400)
			for {
				if _, err := os.Stderr.Write(append(line, '\n')); err != nil {
					return
				}
			}
		}()
	}
	for {
		text, err := h.in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r request
		if json.Unmarshal(text, &r) != nil {
			fmt.Fprintf(os.Stderr, "broken input %q\n", text)
			os.Exit(9)
		}
		h.handle(r)
	}
	if h.role == "stubborn" {
		stay()
	}
}

func (h *hostileServer) initialize(r request) {
	version := r.Params.ProtocolVersion
	switch h.role {
	case "modern", "modern-deaf-to-listen":
		h.refuse(r, -32601, "Method not found")
		return
	case "modern-other-code":
		h.refuse(r, -32022, "Unsupported protocol version")
		return
	case "modern-exits":
		if os.Getenv("MARK") != "" {
			fmt.Fprintln(os.Stderr, "marked")
		}
		h.refuse(r, -32601, "Method not found")
		os.Exit(4)
	case "modern-answers-version":
		version = "2026-07-28"
	case "modern-silent":
		return
	case "refuses-all":
		h.refuse(r, -32000, "no key for "+os.Getenv("SECRET"))
		return
	case "ancient":
		version = "2024-11-05"
	case "unknown-version":
		version = "1999-01-01"
	case "nonsense":
		h.answer(r, `"hello"`)
		return
	case "string-ids":
		r.ID = fmt.Appendf(nil, "%q", r.ID)
	case "says-little":
		h.print("Working...\n"+`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":[],"serverInfo":null,"instructions":7}}`, r.ID, version)
		return
	case "mistyped":
		h.answer(r, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":[],"prompts":true,"resources":null},"serverInfo":"s"}`, version))
		return
	case "no-version":
		h.answer(r, `{"key":"`+os.Getenv("SECRET")+`"}`)
		return
	case "talks":
		h.print("Listening on port 80")
		return
	}
	h.answer(r, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"0"}}`, version))
}

func (h *hostileServer) discover(r request) {
	if !strings.HasPrefix(h.role, "modern") {
		// What servers of the first era really do on it.
		if h.role == "exits-on-discover" {
			os.Exit(1)
		}
		h.refuse(r, -32601, "Method not found")
		return
	}
	if r.Params.Meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28" {
		h.refuse(r, -32602, "no version in _meta")
		return
	}
	h.answer(r, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"i","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"9"}}}`)
}

func (h *hostileServer) handle(r request) {
	if r.ID == nil || r.Method == "" {
		return
	}
	modern := strings.HasPrefix(h.role, "modern")
	if modern && r.Method != "initialize" && r.Params.Meta["io.modelcontextprotocol/clientInfo"] == nil {
		h.refuse(r, -32602, "no _meta in "+r.Method)
		return
	}
	if h.role == "deaf" && r.Method == "ping" {
		return
	}
	switch r.Method {
	case "initialize":
		h.initialize(r)
	case "server/discover":
		h.discover(r)
	case "tools/list":
		h.list(r)
	case "tools/call":
		h.call(r)
	case "subscriptions/listen":
		if h.role == "modern-deaf-to-listen" {
			h.refuse(r, -32601, "Method not found")
		}
	default:
		h.refuse(r, -32601, "Method not found")
	}
}

func (h *hostileServer) list(r request) {
	h.page++
	switch h.role {
	case "cyclic-cursor":
		h.answer(r, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"nextCursor":"c%d"}`, h.page, h.page%3))
	case "endless-pages":
		h.answer(r, fmt.Sprintf(`{"tools":[],"nextCursor":"c%d"}`, h.page))
	case "endless-tools":
		h.answer(r, fmt.Sprintf(`{"tools":[%s{"name":"last-%d"}],"nextCursor":{"page":%d}}`, strings.Repeat(`{"name":"x"},`, 10)+manyTools(h.page*3000, 3000), h.page, h.page))
	case "odd-tools":
		h.answer(r, `{"tools":[{"name":"a"},{"name":"a"},{},7,{"name":""},{"name":5},{"name":"b","inputSchema":true,"outputSchema":[],"annotations":{"title":"B"}},{"name":"class"},{"name":"Class"}],"nextCursor":null}`)
	case "null-tools":
		h.answer(r, `{"tools":null,"nextCursor":""}`)
	case "named-tools":
		h.answer(r, `{"tools":{"a":{"description":"A"},"b":{},"c":{"name":"d","description":null,"annotations":null,"inputSchema":null},"e":7}}`)
	case "no-tools":
		h.refuse(r, -32601, "Method not found")
	case "bad-list":
		h.answer(r, `{"tools":7}`)
	case "bad-page":
		h.answer(r, `[]`)
	case "cyclic-schema":
		h.answer(r, `{"tools":[{"name":"c","inputSchema":{"type":"object","properties":{"a":{"$ref":"#"}}}}]}`)
	case "deep-schema":
		h.answer(r, `{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"b":{}}}},`+
			`{"name":"c","annotations":{"readOnlyHint":true},"inputSchema":`+strings.Repeat(`{"a":`, 5002)+`1`+strings.Repeat(`}`, 5002)+`}]}`)
	case "large-tool":
		h.answer(r, `{"tools":[{"name":"a"},{"name":"d","description":"`+strings.Repeat("d", 10_000_000-3)+`"}]}`)
	case "ttl":
		h.answer(r, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"ttlMs":20}`, h.page))
	default:
		h.answer(r, fmt.Sprintf(`{"tools":[{"name":"call","description":"page %d"}]}`, h.page))
	}
}

func manyTools(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"name":"t%d"},`, from+i)
	}
	return b.String()
}

const okResult = `{"content":[{"type":"text","text":"ok"}]}`

func (h *hostileServer) call(r request) {
	switch r.Params.Name {
	case "silence":
	case "talk":
		h.print("Result: 42")
	case "die":
		fmt.Fprintln(os.Stderr, "last words")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "half-an-answer":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[`, r.ID)
		os.Exit(0)
	case "duplicate":
		h.answer(r, okResult)
		h.answer(r, `{"content":[{"type":"text","text":"again"}]}`)
	case "wrong-id":
		h.print(`{"jsonrpc":"2.0","id":"x%s","result":{}}`, r.ID)
		h.print(`{"jsonrpc":"2.0","id":987654,"result":{}}`)
		h.answer(r, okResult)
	case "big":
		var args struct{ MB int }
		if json.Unmarshal(r.Params.Arguments, &args) != nil {
			os.Exit(9)
		}
		h.mu.Lock()
		w := bufio.NewWriterSize(os.Stdout, 1<<20)
		w.WriteString(`{"result":{"content":[{"type":"text","text":"`)
		chunk := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		for range args.MB {
			w.Write(chunk)
		}
		fmt.Fprintf(w, "\"}]},\"jsonrpc\":\"2.0\",\"id\":%s}\n", r.ID)
		w.Flush()
		h.mu.Unlock()
	case "garbage":
		h.print("\x00\xff garbage }{ \x1b[31m")
		h.answer(r, okResult)
	case "not-json":
		h.answer(r, `{"content":[],"structuredContent":{"v":NaN}}`)
	case "not-json-secret":
		h.answer(r, `{"content":[],"structuredContent":`+os.Getenv("SECRET")+`}`)
	case "not-an-object":
		h.answer(r, `"text"`)
	case "ask":
		h.answer(r, `{"resultType":"input_required","inputRequests":{}}`)
	case "error":
		h.refuse(r, -32602, "bad argument near "+os.Getenv("SECRET"))
	case "changed":
		h.print(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		h.answer(r, okResult)
	case "arguments":
		text, _ := json.Marshal(string(r.Params.Arguments))
		h.answer(r, `{"content":[{"type":"text","text":`+string(text)+`}]}`)
	default:
		h.answer(r, okResult)
	}
}

// define makes a definition of the test binary in a role.
func define(t testing.TB, name, role string, env ...string) Definition {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{roleVariable: role}
	for _, e := range env {
		k, v, _ := strings.Cut(e, "=")
		vars[k] = v
	}
	return definitions.New(name, "", definitions.Launch{Command: exe, Env: vars})
}

func manage(t testing.TB, opts Options, defs ...Definition) *Manager {
	t.Helper()
	if opts.Environ == nil {
		opts.Environ = os.Environ()
	}
	if opts.StopGrace == 0 {
		opts.StopGrace = 300 * time.Millisecond
	}
	m := NewManager(defs, opts)
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// processOf is the process of a server that is a program.
func processOf(s *Server) *child.Process { return s.conn.(*program).proc }

func running(t testing.TB, m *Manager, name string) *Server {
	t.Helper()
	s, err := m.Server(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// text is the first text of a result.
func text(t testing.TB, raw json.RawMessage) string {
	t.Helper()
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Content) == 0 {
		t.Fatalf("%.200s: %v", raw, err)
	}
	return r.Content[0].Text
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// peekRequest is the message in a request, which can still be read.
func peekRequest(r *http.Request) request {
	var m request
	data, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(data))
	if err != nil || json.Unmarshal(data, &m) != nil {
		return request{Method: "?"}
	}
	return m
}

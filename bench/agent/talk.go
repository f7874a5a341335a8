package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tiktoken-go/tokenizer"
)

// maxCalls bounds the calls of one step of a variant.
const maxCalls = 4

// tokens counts as the models of OpenAI do (o200k).
func tokens(s string) int {
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		panic(err) // it is linked in
	}
	n, err := enc.Count(s)
	if err != nil {
		panic(err)
	}
	return n
}

// outcome is what became of one task.
type outcome struct {
	Group, Task string
	Variants    []variantOutcome
	// Direct are the tokens of the same task as direct calls, for each of which
	// the model reads the result. Schemas are those of its servers' tools.
	Direct, Schemas int
}

type variantOutcome struct {
	Name    string
	Solved  bool
	Calls   int   // of run_python, setup not counted
	Steps   int   // calls that it would take without a mistake
	Answers []int // tokens of the text of each answer
	Forms   forms // tokens of all answers
	Sent    int   // tokens of all code, and of the setup and its answer
	Last    string
}

// forms are the tokens of answers as clients give them to their model.
type forms struct {
	Answers    int // how many
	Text       int // the text
	Structured int // structured content in its place, if there is any
	Both       int
}

func (f *forms) count(r *mcp.CallToolResult, text string) error {
	n := tokens(text)
	f.Answers++
	f.Text += n
	f.Both += n
	if r.StructuredContent == nil {
		f.Structured += n
		return nil
	}
	var encoded strings.Builder
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false) // as clients write it
	if err := e.Encode(r.StructuredContent); err != nil {
		return err
	}
	n = tokens(strings.TrimSuffix(encoded.String(), "\n"))
	f.Structured += n
	f.Both += n
	return nil
}

func (f *forms) add(g forms) {
	f.Answers, f.Text, f.Structured, f.Both = f.Answers+g.Answers, f.Text+g.Text, f.Structured+g.Structured, f.Both+g.Both
}

func (m *machine) task(ctx context.Context, t *task) (outcome, error) {
	out := outcome{Group: t.group, Task: t.name}
	for i, v := range t.variants {
		work := filepath.Join(m.dir, fmt.Sprintf("%s-%d", t.name, i+1))
		if err := m.prepare(ctx, t, work); err != nil {
			return out, err
		}
		one, err := m.variant(ctx, t, v, work)
		if err != nil {
			return out, fmt.Errorf("variant %s: %w", v.name, err)
		}
		out.Variants = append(out.Variants, one)
		if i == 0 {
			if err := m.prepare(ctx, t, work); err != nil { // as it was
				return out, err
			}
			if out.Direct, out.Schemas, err = m.direct(ctx, t, work); err != nil {
				return out, err
			}
		}
		if err := os.RemoveAll(work); err != nil {
			return out, err
		}
	}
	return out, nil
}

// prepare makes the work folder of a variant.
func (m *machine) prepare(ctx context.Context, t *task, work string) error {
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := m.copyWork(work); err != nil {
		return err
	}
	for _, s := range t.servers {
		if s == "git" {
			return makeRepository(ctx, filepath.Join(work, "repo"))
		}
	}
	return nil
}

func (m *machine) start(ctx context.Context, work string, argv, env []string) (*mcp.ClientSession, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), env...)
	client := mcp.NewClient(&mcp.Implementation{Name: m.client, Version: "1"}, nil)
	return client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
}

// sallyport starts the executable with all servers of the tasks that are
// installed.
func (m *machine) sallyport(ctx context.Context, work string) (*mcp.ClientSession, error) {
	definitions := map[string]any{}
	for name := range commands {
		if line := m.command(name, work); line != nil {
			definitions[name] = map[string]any{"command": line[0], "args": line[1:], "env": serverEnv(work)}
		}
	}
	data, err := json.Marshal(map[string]any{"mcpServers": definitions})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(work, "..", filepath.Base(work)+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	env := []string{"SALLYPORT_SERVERS_CONFIG=" + file, "SALLYPORT_SERVERS_SOURCES=mcps", "SALLYPORT_STATE_DIR=" + filepath.Join(m.dir, "state"), "HOME=" + m.dir}
	if m.python != "" {
		env = append(env, "SALLYPORT_PYTHON="+m.python)
	}
	return m.start(ctx, work, []string{m.bin, "serve", "--standalone"}, env)
}

func serverEnv(work string) map[string]string {
	return map[string]string{"MEMORY_FILE_PATH": filepath.Join(work, "memory.jsonl")}
}

// variant holds one conversation.
func (m *machine) variant(ctx context.Context, t *task, v variant, work string) (out variantOutcome, err error) {
	out = variantOutcome{Name: v.name, Steps: len(v.calls)}
	s, err := m.sallyport(ctx, work)
	if err != nil {
		return out, err
	}
	defer s.Close()
	if m.definition == 0 {
		if m.definition, err = definition(ctx, s); err != nil {
			return out, err
		}
	}
	fill := func(code string) string { return strings.ReplaceAll(code, "{work}", work) }
	if t.setup != "" {
		text, err := t.prepareSession(ctx, s, work)
		if err != nil {
			return out, err
		}
		out.Sent += tokens(fill(t.setup)) + tokens(text)
	}
	for _, code := range v.calls {
		req := request{code: fill(code), name: "code", arguments: map[string]json.RawMessage{}}
		maps.Copy(req.arguments, v.arguments)
		if name, ok := req.arguments["@code"]; ok {
			delete(req.arguments, "@code")
			if err := json.Unmarshal(name, &req.name); err != nil {
				return out, err
			}
		}
		for range maxCalls {
			r, text, err := call(ctx, s, req)
			if err != nil {
				return out, err
			}
			out.Calls++
			out.Sent += tokens(req.code)
			out.Answers = append(out.Answers, tokens(text))
			if err := out.Forms.count(r, text); err != nil {
				return out, err
			}
			out.Last = text
			if m.verbose {
				fmt.Fprintf(m.stderr, ">>> %s/%s\n%s\n<<<\n%s\n", t.name, v.name, strings.TrimRight(req.code, "\n"), text)
			}
			out.Solved = !r.IsError && (code != v.calls[len(v.calls)-1] || t.solved(r, text, work))
			next, changed := follow(req, text)
			if out.Solved || !changed {
				break
			}
			req = next
		}
		if !out.Solved {
			break
		}
	}
	return out, nil
}

// prepareSession runs the setup of the task.
func (t *task) prepareSession(ctx context.Context, s *mcp.ClientSession, work string) (string, error) {
	r, text, err := call(ctx, s, request{code: strings.ReplaceAll(t.setup, "{work}", work), name: "code"})
	if err == nil && r.IsError {
		err = errors.New(text)
	}
	if err != nil {
		return "", fmt.Errorf("setup: %w", err)
	}
	return text, nil
}

// solved reports whether the last answer is right.
func (t *task) solved(r *mcp.CallToolResult, text, work string) bool {
	pictures := 0
	for _, c := range r.Content {
		if _, ok := c.(*mcp.ImageContent); ok {
			pictures++
		}
	}
	if t.answer != nil && !t.answer.MatchString(text) || pictures < t.pictures {
		return false
	}
	if t.file == "" {
		return true
	}
	data, err := os.ReadFile(filepath.Join(work, t.file))
	return err == nil && t.fileHas.Match(data)
}

func call(ctx context.Context, s *mcp.ClientSession, req request) (*mcp.CallToolResult, string, error) {
	arguments := map[string]any{req.name: req.code}
	for k, v := range req.arguments {
		arguments[k] = v
	}
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: arguments})
	if err != nil {
		return nil, "", err
	}
	return r, textOf(r), nil
}

func textOf(r *mcp.CallToolResult) string {
	var parts []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			parts = append(parts, text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// definition counts what a model reads of a server before its first call: names,
// descriptions and input schemas, which are what clients pass on.
func definition(ctx context.Context, s *mcp.ClientSession) (int, error) {
	list, err := s.ListTools(ctx, nil)
	if err != nil {
		return 0, err
	}
	n := tokens(s.InitializeResult().Instructions)
	for _, t := range list.Tools {
		shown, err := json.Marshal(mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema})
		if err != nil {
			return 0, err
		}
		n += tokens(string(shown))
	}
	return n, nil
}

// direct makes the task's direct calls and counts what a model reads and writes
// for them, and the schemas of the servers.
func (m *machine) direct(ctx context.Context, t *task, work string) (spent, schemas int, err error) {
	if t.setup != "" { // it also fills servers
		s, err := m.sallyport(ctx, work)
		if err != nil {
			return 0, 0, err
		}
		_, err = t.prepareSession(ctx, s, work)
		if err = errors.Join(err, s.Close()); err != nil {
			return 0, 0, err
		}
	}
	sessions := map[string]*mcp.ClientSession{}
	for _, c := range t.direct {
		s := sessions[c.server]
		if s == nil {
			argv := m.command(c.server, work)
			if argv == nil {
				return 0, 0, fmt.Errorf("direct call: server %s is not installed", c.server)
			}
			var env []string
			for k, v := range serverEnv(work) {
				env = append(env, k+"="+v)
			}
			if s, err = m.start(ctx, work, argv, env); err != nil {
				return 0, 0, err
			}
			defer s.Close()
			sessions[c.server] = s
			if m.schemas[c.server] == 0 {
				if m.schemas[c.server], err = definition(ctx, s); err != nil {
					return 0, 0, err
				}
			}
			schemas += m.schemas[c.server]
		}
		arguments := strings.ReplaceAll(c.arguments, "{work}", work)
		r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(arguments)})
		if err != nil {
			return 0, 0, fmt.Errorf("%s.%s: %w", c.server, c.tool, err)
		}
		if r.IsError {
			return 0, 0, fmt.Errorf("%s.%s %s: %s", c.server, c.tool, arguments, textOf(r))
		}
		spent += tokens(c.tool) + tokens(arguments) + tokens(textOf(r))
	}
	return spent, schemas, nil
}

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/wire"
)

// callClient is what 'sallyport tools call' calls itself.
const callClient = "sallyport tools call"

type toolsCallCmd struct {
	composeFlags
	Server  string        `arg:"" help:"The server's name, or the whole tool as it is printed, such as mcp_github.create_issue." complete:"tools"`
	Words   []string      `arg:"" optional:"" name:"argument" help:"The tool, unless it is named already, and its arguments." placeholder:"TOOL KEY=VALUE" complete:"call"`
	Timeout time.Duration `help:"How long the call may take, with the start of the server (default: the server's own limits)." placeholder:"DURATION" type:"seconds"`
	JSON    bool          `help:"Print the whole result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*toolsCallCmd) Help() string {
	return `The call is made as code makes it: the rules of the policy decide, and the audit log records it.

key=value has the type of the tool's input schema: count=3 is a number where the schema says so, tags=a tags=b a list, filter.state=open a member of an object, and a value that begins with { or [ is JSON unless only text fits. key:=JSON is JSON whatever the schema says, key=@FILE is the contents of a file, and key=@- standard input. All arguments may also be one JSON object, or @FILE with one.

The text of the result is printed. The exit status is 1 if the tool reports an error.

Examples:
  sallyport tools call filesystem read_text_file path=notes.txt
  sallyport tools call mcp_github.create_issue title='It fails' labels=bug body=@report.md
  sallyport tools call github search_issues 'query:="is:open"' perPage=5 --json
  sallyport tools call github create_issue '{"title": "It fails"}'
  sallyport tools call github create_issue @- <issue.json`
}

// Run implements the command.
func (c *toolsCallCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	ctx := u.ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no result within %s", c.Timeout))
		defer cancel()
	}
	known := toolsFlags{Timeout: learnTime}
	all := append([]string{c.Server}, c.Words...)
	e, name, words, err := known.tool(u, sys, all...)
	if err != nil {
		return err
	}
	u.warnOf(sys, e.Name)
	t, err := findTool(&e, name)
	if err != nil && e.Listing != nil { // it may be new
		if again, failed := sys.Catalog.List(ctx, e.Name); failed == nil {
			t, err = findTool(&again, name)
		}
	}
	if err != nil {
		return err
	}
	for _, word := range all[:len(all)-len(words)] {
		if after := strings.TrimPrefix(word, e.Name); after != t.Name && strings.Contains(after, "(") && !strings.HasSuffix(after, "()") && !strings.HasSuffix(after, "]") {
			return fmt.Errorf("%s has arguments as in Python: name the tool alone, and write each as key=value after it", invisible.Line(word))
		}
	}
	arguments, err := signature.FromWords(t.InputSchema, words, u.argumentReader())
	if err != nil {
		return fmt.Errorf("%s\nSee its arguments with: sallyport tools show %s %s", err, terminal.ShellWord(invisible.Line(e.Name)), terminal.ShellWord(invisible.Line(t.Name)))
	}
	params, err := json.Marshal(struct {
		Server    string          `json:"server"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	}{e.Name, t.Name, arguments})
	if err != nil {
		return err
	}
	p := authz.Local(callClient)
	p.Request, p.Connection = strings.ToLower(rand.Text()), sys.Broker.ID()
	if err := sys.Bridge.Check(ctx, p, e.Name); err != nil {
		return err
	}
	asked := u.elsewhere(sys, u.dialog(callClient), callClient)
	defer asked()
	x := sys.Bridge.Begin(p, []string{e.Name})
	if _, err := x.Prepare(ctx); err != nil {
		return ended(ctx, err)
	}
	result, err := x.Call(ctx, wire.Call{Method: wire.MethodCallTool, Params: params})
	asked()
	if err != nil {
		return ended(ctx, err)
	}
	for _, note := range x.Notes() {
		fmt.Fprintln(u.stdio.Err, "sallyport: "+invisible.Escape(note))
	}
	return c.print(u, result)
}

// learnTime is how long a server may take to list its tools for the first time.
const learnTime = time.Minute

// ended returns why a call failed: that it took too long, if it did.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// argumentReader returns readArgument for one command line: standard input can be
// read once.
func (u *ui) argumentReader() func(file string) ([]byte, error) {
	read := false
	return func(file string) ([]byte, error) {
		if file == "-" && read {
			return nil, errors.New("standard input is read by another argument already")
		}
		read = read || file == "-"
		return u.readArgument(file)
	}
}

// readArgument reads the file of an argument; - is standard input.
func (u *ui) readArgument(file string) ([]byte, error) {
	in := u.input()
	if file != "-" {
		f, err := os.Open(filepath.Clean(file))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	} else if u.stdio.In == nil {
		return nil, errors.New("there is no standard input")
	}
	data, err := io.ReadAll(io.LimitReader(in, maxProgram+1))
	if err == nil && len(data) > maxProgram {
		err = fmt.Errorf("%s is larger than %d MiB", file, maxProgram>>20)
	}
	return data, err
}

// called is the result of a tool.
type called struct {
	Content []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		MIMEType string `json:"mimeType"`
		Data     string `json:"data"`
		URI      string `json:"uri"`
		Resource struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
			Blob string `json:"blob"`
			Type string `json:"mimeType"`
		} `json:"resource"`
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

// print prints the text of a result, or all of it.
func (c *toolsCallCmd) print(u *ui, raw json.RawMessage) error {
	var result called
	if err := json.Unmarshal(raw, &result); err != nil {
		return fmt.Errorf("the result is not that of a tool: %w", err)
	}
	out := u.stdio.Out
	if result.IsError && !c.JSON {
		out = u.stdio.Err
	}
	text, left := "", 0
	for _, block := range result.Content {
		switch {
		case block.Type == "text":
			text += block.Text + "\n"
		case block.Type == "resource" && block.Resource.Blob == "":
			text += cmp.Or(block.Resource.Text, block.Resource.URI) + "\n"
		case block.Type == "resource_link":
			text += block.URI + "\n"
		default:
			if left++; c.JSON {
				continue
			}
			fmt.Fprintf(u.stdio.Err, "sallyport: left out: %s of %s; --json prints it\n", invisible.Line(block.Type), invisible.Line(cmp.Or(block.MIMEType, block.Resource.Type, "an unknown type")))
		}
	}
	var err error
	switch {
	case c.JSON:
		err = u.printJSON(raw)
	case text == "" && left == 0 && result.Structured != nil:
		err = u.printJSON(result.Structured)
	default:
		_, err = io.WriteString(out, text)
	}
	return failIf(err, result.IsError)
}

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/signature"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

type toolsShowCmd struct {
	toolsFlags
	Server string `arg:"" help:"The server's name, or the whole tool as it is printed, such as mcp_github.create_issue." complete:"tools"`
	Tool   string `arg:"" optional:"" help:"The name of the tool, or of its function." complete:"tools-of"`
	JSON   bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*toolsShowCmd) Help() string {
	return `Invisible characters are shown as \u{200b}.

Examples:
  sallyport tools show filesystem read_text_file
  sallyport tools show mcp_filesystem.read_text_file`
}

// toolShown is everything about a tool.
type toolShown struct {
	toolFound
	Title        string          `json:"title,omitempty"`
	Text         string          `json:"text,omitempty"` // the whole description
	Hides        string          `json:"hides,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Diff         string          `json:"diff,omitempty"`
}

// Run implements the command.
func (c *toolsShowCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	e, name, rest, err := c.tool(u, sys, c.Server, c.Tool)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%s names a tool already; what is %s?", c.Server, c.Tool)
	}
	if err != nil {
		return err
	}
	t, err := findTool(&e, name)
	if err != nil {
		return err
	}
	shown, err := showTool(sys, &e, t)
	if err != nil {
		return err
	}
	if c.JSON {
		return u.printJSON(shown)
	}
	return shown.print(u.stdio.Out)
}

func unknownTool(server, tool string, l *catalog.Listing) error {
	names := make([]string, len(l.Tools))
	for i := range l.Tools {
		names[i] = l.Tools[i].Name
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no tools", invisible.Line(server))
	}
	return fmt.Errorf("%s has no tool %q; the nearest of %d: %s", invisible.Line(server), tool, len(names),
		invisible.Line(strings.Join(definitions.Near(tool, names, 5), ", ")))
}

func showTool(sys *app.System, e *catalog.Entry, t *tool.Tool) (*toolShown, error) {
	out := &toolShown{
		toolFound: findingOf(sys, e.Server, t, callsOf(sys)[e.Name]+tool.Calls(e.Listing.Tools, e.Denied)[t.Name]), Title: t.Title, Text: t.Description,
		InputSchema: t.InputSchema, OutputSchema: t.OutputSchema,
	}
	out.Signature = signature.Whole(t.InputSchema, t.OutputSchema) + signature.Learned(sys.Catalog.Shapes(e.Name).Of(t), false)
	texts := t.Name + t.Title + t.Description
	for _, a := range signature.Arguments(t.InputSchema) {
		texts += a.Name + a.Description
	}
	out.Hides = invisible.Names(invisible.In(texts))
	if out.State == "" {
		return out, nil
	}
	accepted, seen, err := sys.Pins.Form(pinsOf(e.Server), pins.Tool, t.Name)
	if err != nil {
		return nil, err
	}
	out.Diff = pins.Diff(accepted, seen)
	return out, nil
}

func (t *toolShown) print(w io.Writer) error {
	fmt.Fprintf(w, "%s%s\n", t.call(), t.mark())
	if t.Hides != "" {
		fmt.Fprintf(w, "It contains invisible characters: %s\n", t.Hides)
	}
	if t.Text != "" {
		fmt.Fprintf(w, "\n%s\n", invisible.Escape(strings.TrimSpace(t.Text)))
	}
	arguments := false
	for _, a := range signature.Arguments(t.InputSchema) {
		if a.Description == "" {
			continue
		}
		if !arguments {
			fmt.Fprintln(w)
			arguments = true
		}
		fmt.Fprintf(w, "  %s: %s\n", invisible.Line(a.Name), invisible.Line(a.Description))
	}
	for _, s := range []struct {
		name string
		raw  json.RawMessage
	}{{"Input schema", t.InputSchema}, {"Output schema", t.OutputSchema}} {
		var text bytes.Buffer
		if len(s.raw) > 0 && json.Indent(&text, s.raw, "", "  ") == nil {
			fmt.Fprintf(w, "\n%s:\n%s\n", s.name, invisible.Escape(text.String()))
		}
	}
	var err error
	if t.Diff != "" {
		_, err = fmt.Fprintf(w, "\nSince it was accepted (accept this with: sallyport tools approve %s):\n%s", terminal.ShellWord(invisible.Line(t.Server)), t.Diff)
	}
	return err
}

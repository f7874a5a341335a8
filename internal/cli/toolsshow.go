package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sallyport/internal/catalog"
	"sallyport/internal/hidden"
	"sallyport/internal/pins"
	"sallyport/internal/signature"
	"sallyport/internal/upstream/definitions"
)

type toolsShowCmd struct {
	toolsFlags
	Server string `arg:"" help:"The server's name."`
	Tool   string `arg:"" help:"The tool's name, or that of its function."`
	JSON   bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*toolsShowCmd) Help() string {
	return `Characters that would not be seen are shown as \u{200b}.

Example:
  sallyport tools show filesystem read_text_file`
}

// toolShown is all of a tool.
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
func (c *toolsShowCmd) Run(a *app) error {
	sys, err := a.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.close()
	e, ok := sys.known.catalog.Entry(c.Server)
	if !ok {
		return unknownServer(c.Server, sys.library.Snapshot())
	}
	c.learn(a, sys, c.Server)
	if e, _ = sys.known.catalog.Entry(c.Server); e.Listing == nil {
		return fmt.Errorf("the tools of %s are not known: %s", hidden.Line(c.Server), hidden.Escape(whyNot(e.Failure)))
	}
	t := findTool(e.Listing, c.Tool)
	if t == nil {
		return unknownTool(c.Server, c.Tool, e.Listing)
	}
	shown, err := sys.showTool(&e, t)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(shown)
	}
	return shown.print(a.stdio.Out)
}

func findTool(l *catalog.Listing, name string) *catalog.Tool {
	var found *catalog.Tool
	for i := range l.Tools {
		switch name {
		case l.Tools[i].Name:
			return &l.Tools[i]
		case l.Tools[i].Alias:
			found = &l.Tools[i]
		}
	}
	return found
}

func unknownTool(server, tool string, l *catalog.Listing) error {
	names := make([]string, len(l.Tools))
	for i := range l.Tools {
		names[i] = l.Tools[i].Name
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no tools", hidden.Line(server))
	}
	return fmt.Errorf("%s has no tool %q; the nearest of %d: %s", hidden.Line(server), tool, len(names),
		hidden.Line(strings.Join(definitions.Near(tool, names, 5), ", ")))
}

func (s *system) showTool(e *catalog.Entry, t *catalog.Tool) (*toolShown, error) {
	out := &toolShown{
		toolFound: s.toolFound(e.Server, t), Title: t.Title, Text: t.Description,
		InputSchema: t.InputSchema, OutputSchema: t.OutputSchema,
	}
	out.Signature = signature.Whole(t.InputSchema, t.OutputSchema)
	texts := t.Name + t.Title + t.Description
	for _, a := range signature.Arguments(t.InputSchema) {
		texts += a.Name + a.Description
	}
	out.Hides = hidden.Names(hidden.In(texts))
	if out.State == "" {
		return out, nil
	}
	accepted, seen, err := s.known.pins.Form(pinsOf(e.Server), pins.Tool, t.Name)
	if err != nil {
		return nil, err
	}
	out.Diff = pins.Diff(accepted, seen)
	return out, nil
}

func (t *toolShown) print(w io.Writer) error {
	fmt.Fprintf(w, "%s%s\n", t.call(), t.mark())
	if t.Hides != "" {
		fmt.Fprintf(w, "It hides characters: %s\n", t.Hides)
	}
	if t.Text != "" {
		fmt.Fprintf(w, "\n%s\n", hidden.Escape(strings.TrimSpace(t.Text)))
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
		fmt.Fprintf(w, "  %s: %s\n", hidden.Line(a.Name), hidden.Line(a.Description))
	}
	for _, s := range []struct {
		name string
		raw  json.RawMessage
	}{{"Input schema", t.InputSchema}, {"Output schema", t.OutputSchema}} {
		var text bytes.Buffer
		if len(s.raw) > 0 && json.Indent(&text, s.raw, "", "  ") == nil {
			fmt.Fprintf(w, "\n%s:\n%s\n", s.name, hidden.Escape(text.String()))
		}
	}
	var err error
	if t.Diff != "" {
		_, err = fmt.Fprintf(w, "\nSince it was accepted ('sallyport tools approve %s' accepts this):\n%s", hidden.Line(t.Server), t.Diff)
	}
	return err
}

package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sallyport/internal/catalog"
	"sallyport/internal/hidden"
	"sallyport/internal/pins"
	"sallyport/internal/state"
	"sallyport/internal/upstream"
	"sallyport/internal/wire"
)

// observe compares a server's tools with what the user accepted, and then gives
// them to the catalog. Where changes are refused, and it cannot be told what was
// accepted, all tools are new.
func (b *Bridge) observe(d upstream.Definition, s Server, tools []upstream.Tool) pins.Report {
	defer b.catalog.Learn(d.Name, ListingOf(s, tools))
	if b.config.Pins == nil {
		return pins.Report{}
	}
	seen := make([]pins.Tool, len(tools))
	for i := range tools {
		t := &tools[i]
		seen[i] = pins.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema, OutputSchema: t.OutputSchema}
	}
	report, err := b.config.Pins.Check(Pinned(d), seen)
	if err != nil {
		b.log.Warn("pins: what the tools of a server were cannot be told", "server", d.Name, "error", err)
		if b.config.RefuseChanged {
			report = pins.Report{Hidden: report.Hidden}
			for i := range tools {
				report.New = append(report.New, tools[i].Name)
			}
		}
	}
	return report
}

// Observer tells the pins what the catalog's own look at a server found.
func Observer(book *pins.Book, warn func(server string, err error)) func(catalog.Server, *catalog.Listing) {
	return func(s catalog.Server, l *catalog.Listing) {
		seen := make([]pins.Tool, len(l.Tools))
		for i := range l.Tools {
			t := &l.Tools[i]
			seen[i] = pins.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.InputSchema, OutputSchema: t.OutputSchema}
		}
		if _, err := book.Check(pins.Server{Name: s.Name, Key: s.Program}, seen); err != nil {
			warn(s.Name, err)
		}
	}
}

// status is how a server's tools stand to what was accepted.
func (b *Bridge) status(s pins.Server) pins.Report {
	report, _ := b.checked(s) // who refuses changes asks that
	return report
}

// checked is status; an error says that it cannot be told.
func (b *Bridge) checked(s pins.Server) (pins.Report, error) {
	if b.config.Pins == nil {
		return pins.Report{}, nil
	}
	report, err := b.config.Pins.Status(s)
	if errors.Is(err, state.ErrNoPlace) { // nothing to compare with, now or ever
		err = nil
	}
	return report, err
}

// warning is what a document says of a tool that is not as it was accepted.
func (b *Bridge) warning(s catalog.Server, tool string) string {
	report := b.status(pins.Server{Name: s.Name, Key: s.Program})
	switch {
	case slices.Contains(report.Changed, tool) && b.config.RefuseChanged:
		return "the server describes this tool otherwise now: it is refused until the user approves it"
	case slices.Contains(report.Changed, tool):
		return "the server has changed this description since the user first saw it"
	}
	return ""
}

// accepted is an entry as code may read it: where changes are refused, tools
// in the form that was accepted, and none that are new.
func (b *Bridge) accepted(e catalog.Entry) catalog.Entry {
	if !b.config.RefuseChanged {
		return e
	}
	if report, err := b.checked(pins.Server{Name: e.Name, Key: e.Program}); err == nil && report.Quiet() {
		return e
	}
	listing := *e.Listing
	listing.Tools = nil
	for i := range e.Listing.Tools {
		if t := b.acceptedTool(e.Server, &e.Listing.Tools[i]); t != nil {
			listing.Tools = append(listing.Tools, *t)
		}
	}
	e.Listing = &listing
	return e
}

// acceptedTool is accepted for one tool; nil: there is no such tool.
func (b *Bridge) acceptedTool(s catalog.Server, t *catalog.Tool) *catalog.Tool {
	if !b.config.RefuseChanged {
		return t
	}
	server := pins.Server{Name: s.Name, Key: s.Program}
	report, err := b.checked(server)
	if !slices.Contains(report.Changed, t.Name) {
		if err != nil || slices.Contains(report.New, t.Name) {
			return nil
		}
		return t
	}
	form, _, err := b.config.Pins.Form(server, t.Name)
	if err != nil || form == nil {
		return nil
	}
	was := *t
	was.Title, was.Description, was.InputSchema, was.OutputSchema = form.Title, form.Description, form.Input, form.Output
	return &was
}

// acceptedTools is acceptedTool for what is defined in a sandbox.
func (b *Bridge) acceptedTools(s pins.Server, report pins.Report, tools []wire.Tool) []wire.Tool {
	for i := range tools {
		tools[i].Description = hidden.Strip(tools[i].Description)
	}
	if !b.config.RefuseChanged || report.Quiet() {
		return tools
	}
	kept := tools[:0]
	for _, t := range tools {
		if slices.Contains(report.New, t.Name) {
			continue
		}
		if slices.Contains(report.Changed, t.Name) {
			form, _, err := b.config.Pins.Form(s, t.Name)
			if err != nil || form == nil {
				continue
			}
			t.Description, t.InputSchema, t.OutputSchema = hidden.Strip(form.Description), form.Input, form.Output
			if len(t.InputSchema) == 0 {
				t.InputSchema = json.RawMessage(`{"type":"object"}`)
			}
		}
		kept = append(kept, t)
	}
	return kept
}

// permit refuses the call of a tool that is not as it was accepted, where that
// is set.
func (b *Bridge) permit(server, tool string) error {
	if !b.config.RefuseChanged || b.config.Pins == nil {
		return nil
	}
	d, ok := b.current(false).servers[server]
	if !ok {
		return nil // the call says so
	}
	report, err := b.checked(Pinned(d))
	why := ""
	switch {
	case err != nil:
		why = "what was accepted of the server cannot be read"
	case slices.Contains(report.Changed, tool):
		why = "the server describes it otherwise than when it was accepted"
	case slices.Contains(report.New, tool):
		why = "the server did not have it when its tools were accepted"
	default:
		return nil
	}
	return &wire.CallError{Kind: wire.KindDenied, Message: fmt.Sprintf(
		"tool '%s' of server '%s' is refused: %s; the user can look at it with `sallyport tools show %s %s` and accept it with `sallyport tools approve %s`",
		clip(tool, 100), server, why, shellWord(server), shellWord(clip(tool, 100)), shellWord(server))}
}

// note adds a line to the result's notes, once.
func (x *Execution) note(text string) {
	const most = 10
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.notes) < most && !slices.Contains(x.notes, text) {
		x.notes = append(x.notes, text)
	}
}

// Notes are what the execution's result should tell beside: servers that a
// search left out, and granted servers whose tools are not as they were.
func (x *Execution) Notes() []string {
	for _, name := range x.Granted() {
		x.bridge.mu.Lock()
		c := x.bridge.cache[name]
		x.bridge.mu.Unlock()
		if c == nil || c.report.Quiet() && (len(c.report.Hidden) == 0 || c.told.Swap(true)) {
			continue // what is hidden is taken out: that is told once
		}
		if text := changes(name, c.report, x.bridge.config.RefuseChanged); text != "" {
			x.note(text)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.notes)
}

// changes says what of a server's tools is not as it was. New tools are no
// change of what was accepted and are told where they are refused.
func changes(server string, r pins.Report, refused bool) string {
	var parts []string
	if len(r.Changed) > 0 {
		parts = append(parts, "changed what it says of "+some(r.Changed)+" since you first saw it")
	}
	if len(r.New) > 0 && refused {
		parts = append(parts, "has new tools ("+some(r.New)+")")
	}
	if len(r.Hidden) > 0 {
		parts = append(parts, "hides characters in "+some(r.Hidden))
	}
	if len(parts) == 0 {
		return ""
	}
	text := "server " + hidden.Line(server) + " " + strings.Join(parts, ", and ")
	if r.Quiet() {
		return text
	}
	if refused {
		text += "; they are refused until they are approved"
	}
	return text + " (the user: sallyport tools approve " + shellWord(server) + ")"
}

// some names the first few tools.
func some(tools []string) string {
	const most = 5
	names := make([]string, 0, most)
	for _, t := range tools[:min(most, len(tools))] {
		names = append(names, hidden.Line(clip(t, 60)))
	}
	text := strings.Join(names, ", ")
	if more := len(tools) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

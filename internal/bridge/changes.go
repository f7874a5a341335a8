package bridge

import (
	"cmp"
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

// observe compares a server's tools and instructions with what the user
// accepted, and then gives them to the catalog. Where changes are refused, and
// what was accepted is not known, all tools are new.
func (b *Bridge) observe(d upstream.Definition, s Server, tools []upstream.Tool) pins.Report {
	defer b.catalog.Learn(d.Name, ListingOf(s, tools))
	report, err := b.compare(d, Said(s, tools)...)
	if err != nil && b.config.RefuseChanged {
		report = pins.Report{Hidden: report.Hidden}
		for i := range tools {
			report.New = append(report.New, tools[i].Name)
		}
	}
	return report
}

// compare compares what a server says with what was accepted. When that fails,
// nothing counts as accepted until it succeeds.
func (b *Bridge) compare(d upstream.Definition, all ...pins.Listed) (pins.Report, error) {
	if b.config.Pins == nil {
		return pins.Report{}, nil
	}
	s := Pinned(d)
	report, err := b.config.Pins.Check(s, all...)
	if err != nil {
		b.log.Warn("pins: what a server says cannot be compared with what was accepted", "server", d.Name, "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsure[s.Key] = err
	for _, name := range report.OtherHidden {
		if !slices.Contains(b.hides[d.Name], name) && len(b.hides[d.Name]) < maxHides {
			b.hides[d.Name] = append(b.hides[d.Name], name)
		}
	}
	return report, err
}

// maxHides bounds what is remembered of hidden characters in what is no tool.
const maxHides = 20

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
	b.mu.Lock()
	err := b.unsure[s.Key]
	b.mu.Unlock()
	if err != nil {
		return pins.Report{}, err
	}
	report, err := b.config.Pins.Status(s)
	if errors.Is(err, state.ErrNoPlace) { // nothing to compare with, now or ever
		err = nil
	}
	return report, err
}

// warning is what a document says of a tool that is not as it was accepted.
func (b *Bridge) warning(s catalog.Server, tool string) string {
	report := b.status(pinned(s))
	switch {
	case slices.Contains(report.Changed, tool) && b.config.RefuseChanged:
		return "the server describes this tool otherwise now: it is refused until the user approves it"
	case slices.Contains(report.Changed, tool):
		return "the server has changed this description since the user first saw it"
	}
	return ""
}

// vetted returns a function that says in which form an item may be read: as the
// server says it now (nil, true), in another form, or not at all (nil, false).
func (b *Bridge) vetted(s pins.Server) func(kind pins.Kind, name string) (*pins.Form, bool) {
	if !b.config.RefuseChanged {
		return func(pins.Kind, string) (*pins.Form, bool) { return nil, true }
	}
	report, err := b.checked(s)
	return func(kind pins.Kind, name string) (*pins.Form, bool) {
		changed, added := report.Changed, report.New
		if kind != pins.Tool {
			changed, added = report.OtherChanged, report.OtherNew
		}
		label := kind.Label(name)
		switch {
		case err != nil || slices.Contains(added, label):
			return nil, false
		case slices.Contains(changed, label):
			form, _, err := b.config.Pins.Form(s, kind, name)
			return form, err == nil && form != nil
		}
		return nil, true
	}
}

// accepted is an entry as code may read it.
func (b *Bridge) accepted(e catalog.Entry) catalog.Entry {
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
	form, ok := b.vetted(pinned(s))(pins.Tool, t.Name)
	if !ok || form == nil {
		if !ok {
			return nil
		}
		return t
	}
	was := *t
	was.Title, was.Description, was.InputSchema, was.OutputSchema = form.Title, form.Description, form.Input, form.Output
	return &was
}

// acceptedTools is acceptedTool for what is defined in a sandbox, without hidden
// characters.
func (b *Bridge) acceptedTools(s pins.Server, tools []wire.Tool) []wire.Tool {
	vetted := b.vetted(s)
	kept := tools[:0]
	for _, t := range tools {
		form, ok := vetted(pins.Tool, t.Name)
		if !ok {
			continue
		}
		if form != nil {
			t.Description, t.InputSchema, t.OutputSchema = form.Description, form.Input, form.Output
		}
		if len(t.InputSchema) == 0 {
			t.InputSchema = anyObject
		}
		t.Description = hidden.Strip(t.Description)
		t.InputSchema, t.OutputSchema = hidden.StripJSON(t.InputSchema, hidden.Schema), hidden.StripJSON(t.OutputSchema, hidden.Schema)
		kept = append(kept, t)
	}
	return kept
}

var anyObject = json.RawMessage(`{"type":"object"}`)

// about is what a server is for, as code may read it.
func (b *Bridge) about(e *catalog.Entry) string {
	if e.Description != "" {
		return e.About()
	}
	form, ok := b.vetted(pinned(e.Server))(pins.Instructions, "")
	switch {
	case !ok:
		return ""
	case form == nil:
		return e.About()
	}
	return catalog.Line(cmp.Or(form.Description, form.Title))
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
		if text := x.bridge.changesOf(name); text != "" {
			x.note(text)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.notes)
}

// changesOf is what a result says of a server. Hidden characters, which are
// removed, are reported once.
func (b *Bridge) changesOf(name string) string {
	b.mu.Lock()
	c := b.cache[name]
	b.mu.Unlock()
	if c == nil {
		return ""
	}
	report := c.report
	if d, ok := b.current(false).servers[name]; ok {
		if now, err := b.checked(Pinned(d)); err == nil {
			report.OtherChanged, report.OtherNew = now.OtherChanged, now.OtherNew
		}
	}
	b.mu.Lock()
	report.OtherHidden = slices.Clone(b.hides[name])
	hides := strings.Join(slices.Concat(report.Hidden, report.OtherHidden), "\n")
	again := b.hidesTold[name] == hides
	b.hidesTold[name] = hides
	b.mu.Unlock()
	if report.Quiet() && again {
		return ""
	}
	return changes(name, report, b.config.RefuseChanged)
}

// changes says what of a server's tools is not as it was. New tools are no
// change of what was accepted and are told where they are refused.
func changes(server string, r pins.Report, refused bool) string {
	var parts []string
	if changed := slices.Concat(r.Changed, r.OtherChanged); len(changed) > 0 {
		parts = append(parts, "changed what it says of "+some(changed)+" since you first saw it")
	}
	if len(r.New) > 0 && refused {
		parts = append(parts, "has new tools ("+some(r.New)+")")
	}
	if len(r.OtherNew) > 0 && refused {
		parts = append(parts, "offers something new ("+some(r.OtherNew)+")")
	}
	if hides := slices.Concat(r.Hidden, r.OtherHidden); len(hides) > 0 {
		parts = append(parts, "hides characters in "+some(hides))
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

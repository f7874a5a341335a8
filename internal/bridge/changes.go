package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// observe compares a server's tools and instructions with what the user
// accepted, and then gives them to the catalog. If changes are refused and it
// is not known what was accepted, all tools are new.
func (b *Bridge) observe(d upstream.Definition, s Server, tools []tool.Tool) pins.Report {
	defer b.catalog.Learn(d.Name, listingOf(s, tools))
	report, err := b.compare(d, said(s, tools)...)
	if err != nil && b.config.Gate.RefusesChanged() {
		report = pins.Report{Hidden: report.Hidden}
		for i := range tools {
			report.New = append(report.New, tools[i].Name)
		}
	}
	return report
}

// compare compares a server's descriptions with what was accepted. If that
// fails, nothing counts as accepted until it succeeds.
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

// maxHides bounds how many prompts and resources with hidden characters are
// remembered.
const maxHides = 20

// status reports how a server's tools differ from what was accepted.
func (b *Bridge) status(s pins.Server) pins.Report {
	report, _ := b.checked(s) // callers that refuse changes check the error
	return report
}

// checked is status, with an error if the comparison failed.
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
	if errors.Is(err, store.ErrNoPlace) { // nothing to compare with, now or ever
		err = nil
	}
	return report, err
}

// warning returns what a document says about a tool that differs from what was
// accepted.
func (b *Bridge) warning(s catalog.Server, tool string) string {
	report := b.status(pinned(s))
	switch {
	case slices.Contains(report.Changed, tool) && b.config.Gate.RefusesChanged():
		return "the server has changed this tool: it is refused until the user approves it"
	case slices.Contains(report.Changed, tool):
		return "the server has changed this description since the user first saw it"
	}
	return ""
}

// acceptedForms returns a function that reports in which form code may read an
// item: as the server describes it now (nil, true), in the form that was accepted,
// or not at all (nil, false).
func (b *Bridge) acceptedForms(s pins.Server) func(kind pins.Kind, name string) (*pins.Form, bool) {
	if !b.config.Gate.RefusesChanged() {
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

// accepted returns a server's tools as code may read them: without invisible
// characters and, if changes are refused, in the form that was accepted. Every
// tool that reaches code passes through here.
func (b *Bridge) accepted(s pins.Server, tools []tool.Tool) []tool.Tool {
	forms := b.acceptedForms(s)
	kept := make([]tool.Tool, 0, len(tools))
	for _, t := range tools {
		form, ok := forms(pins.Tool, t.Name)
		if !ok {
			continue
		}
		if form != nil {
			t = form.Tool(t.Name)
		}
		t.Title, t.Description = invisible.Strip(t.Title), invisible.Strip(t.Description)
		t.InputSchema = invisible.StripJSON(t.InputSchema, invisible.Schema)
		t.OutputSchema = invisible.StripJSON(t.OutputSchema, invisible.Schema)
		t.Raw = invisible.StripJSON(t.Raw, invisible.Item)
		kept = append(kept, t)
	}
	return kept
}

// ownWords returns a server's tools as the server describes them, as far as code
// may read that.
func (x *Execution) ownWords(ctx context.Context, name string, tools []tool.Tool) ([]json.RawMessage, error) {
	b := x.bridge
	var s pins.Server
	if d, ok := b.current(false).servers[name]; ok && b.config.Gate.RefusesChanged() {
		s = Pinned(d)
		if _, err := b.describe(ctx, x.principal, name); err != nil { // compares them if that was not done
			return nil, err
		}
		if _, err := b.checked(s); err != nil {
			return nil, err
		}
	}
	accepted := b.accepted(s, tools)
	list := make([]json.RawMessage, len(accepted))
	for i := range accepted {
		list[i] = accepted[i].Raw
	}
	return list, nil
}

// about returns what a server is for, as code may read it.
func (b *Bridge) about(e *catalog.Entry) string {
	if e.Description != "" {
		return e.About()
	}
	form, ok := b.acceptedForms(pinned(e.Server))(pins.Instructions, "")
	switch {
	case !ok:
		return ""
	case form == nil:
		return e.About()
	}
	return tool.FirstSentence(cmp.Or(form.Description, form.Title))
}

// formOf compares a tool with what was accepted.
func (b *Bridge) formOf(s pins.Server, tool string) authz.Form {
	report, err := b.checked(s)
	switch {
	case err != nil:
		return authz.FormUnreadable
	case slices.Contains(report.Changed, tool):
		return authz.FormChanged
	case slices.Contains(report.New, tool):
		return authz.FormNew
	}
	return authz.FormAccepted
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

// Notes returns what the execution's result should report as well: servers that
// a search left out, granted servers whose tools have changed, and how old results
// are that were used again.
func (x *Execution) Notes() []string {
	for _, name := range x.Granted() {
		if text := x.bridge.changesOf(name); text != "" {
			x.note(text)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Concat(x.notes, x.reused.notes())
}

// changesOf returns what a result says about a server. Hidden characters, which
// are removed, are reported once.
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
	return changes(name, report, b.config.Gate.RefusesChanged())
}

// changes describes what differs from what was accepted. New tools do not
// change what was accepted, and are reported only if they are refused.
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
	text := "server " + invisible.Line(server) + " " + strings.Join(parts, ", and ")
	if r.Quiet() {
		return text
	}
	if refused {
		text += "; they are refused until they are approved"
	}
	return text + " (the user: sallyport tools approve " + terminal.ShellWord(server) + ")"
}

// some lists the first few tools.
func some(tools []string) string {
	const most = 5
	names := make([]string, 0, most)
	for _, t := range tools[:min(most, len(tools))] {
		names = append(names, invisible.Line(clip(t, 60)))
	}
	text := strings.Join(names, ", ")
	if more := len(tools) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

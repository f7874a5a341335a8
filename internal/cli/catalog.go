package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sallyport/internal/bridge"
	"sallyport/internal/catalog"
	"sallyport/internal/pins"
	"sallyport/internal/state"
	"sallyport/internal/upstream"
	"sallyport/internal/upstream/library"
)

// Borrow implements bridge.Lender.
func (u userServers) Borrow(ctx context.Context, name string, use func(bridge.Server) error) error {
	return u.Source.(bridge.Lender).Borrow(ctx, name, use)
}

// knowledge is what is remembered of servers' tools: what they are, and which
// form of them the user accepted.
type knowledge struct {
	catalog *catalog.Catalog
	pins    *pins.Book
}

// remember opens what is remembered of the servers of a source.
func (a *app) remember(s *system, source bridge.Source) knowledge {
	dir := state.At(a.settings.StateDir)
	k := knowledge{pins: pins.Open(dir.Sub("pins"), a.log)}
	secret, err := catalog.Secret(dir.Sub("catalog"))
	if err != nil {
		a.log.Warn("what is known of servers cannot be kept", "error", err)
	}
	k.catalog = catalog.New(catalog.Config{
		Source:  bridge.NewListable(source, s.policy, secret, k.pins, a.log),
		Dir:     dir.Sub("catalog"),
		Log:     a.log,
		Refresh: catalog.Refresh(a.settings.Catalog.Refresh),
		MaxAge:  a.settings.Catalog.MaxAge,
		Timeout: a.settings.Servers.StartTimeout + 30*time.Second,
	})
	return k
}

// pinsOf are the pins of a server of the catalog.
func pinsOf(s catalog.Server) pins.Server { return pins.Server{Name: s.Name, Key: s.Program} }

// savedEntries are the saved tools as the catalog has servers, if there are any.
func (a *app) savedEntries(sys *system) []catalog.Entry {
	if _, taken := sys.library.Snapshot().Get(bridge.SavedServer); taken || !a.settings.Saved.Enabled {
		return nil
	}
	e, err := bridge.SavedEntry(savedToolsOf(a.settings))
	if err != nil || len(e.Listing.Tools) == 0 {
		return nil // 'sallyport saved-tools' says what is wrong
	}
	return []catalog.Entry{e}
}

// toolChanges is how the tools of a server stand to what the user accepted.
func (a *app) toolChanges(d upstream.Definition) pins.Report {
	report, err := pins.Open(state.At(a.settings.StateDir).Sub("pins"), a.log).Status(bridge.Pinned(d))
	if err != nil {
		return pins.Report{} // nothing was ever accepted
	}
	return report
}

// markChanges fills in which tools of the servers are not as they were.
func (a *app) markChanges(lines []serverLine, snapshot *library.Snapshot) {
	for i := range lines {
		if d, ok := snapshot.Get(lines[i].Name); ok {
			report := a.toolChanges(d)
			lines[i].ChangedTools, lines[i].NewTools = report.Changed, report.New
			lines[i].ChangedOthers, lines[i].NewOthers = report.OtherChanged, report.OtherNew
		}
	}
}

// changes says in a few words what markChanges found.
func (l *serverLine) changes() string {
	text := ""
	if n := len(l.ChangedTools); n > 0 {
		text += ", " + count(n, "tool") + " changed"
	}
	if n := len(l.NewTools); n > 0 {
		text += ", " + count(n, "tool") + " new"
	}
	if n := len(l.ChangedOthers) + len(l.NewOthers); n > 0 {
		text += fmt.Sprintf(", %d of instructions, prompts and resources changed or new", n)
	}
	return text
}

// approveChanges accepts the changed tools of a server, if it has any. The user
// is shown what changed.
func (a *app) approveChanges(snapshot *library.Snapshot, name string, yes bool) (done bool, err error) {
	d, ok := snapshot.Get(name)
	if !ok {
		return false, nil
	}
	report := a.toolChanges(d)
	if report.Quiet() {
		return false, nil
	}
	book := pins.Open(state.At(a.settings.StateDir).Sub("pins"), a.log)
	for _, name := range report.Differences() {
		text, err := book.Difference(bridge.Pinned(d), name)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(a.stdio.Out, "%s\n%s\n", printable(name), text)
	}
	if !yes && !a.agreed("Accept this?") {
		return false, errors.New("nothing was accepted; --yes accepts without a question")
	}
	names, err := book.Approve(bridge.Pinned(d))
	if err != nil {
		return false, err
	}
	fmt.Fprintf(a.stdio.Out, "Accepted: %s\n", printable(strings.Join(names, ", ")))
	return true, nil
}

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/upstream/library"
)

// markChanges fills in which tools of the servers have changed.
func (u *ui) markChanges(lines []serverLine, snapshot *library.Snapshot) {
	for i := range lines {
		if d, ok := snapshot.Get(lines[i].Name); ok {
			report := u.ToolChanges(d)
			lines[i].ChangedTools, lines[i].NewTools = report.Changed, report.New
			lines[i].ChangedOthers, lines[i].NewOthers = report.OtherChanged, report.OtherNew
		}
	}
}

// changes summarizes what markChanges found.
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

// approveChanges accepts the changed tools of a server, if it has any, after
// showing the user what changed.
func (u *ui) approveChanges(snapshot *library.Snapshot, name string, yes bool) (done bool, err error) {
	d, ok := snapshot.Get(name)
	if !ok {
		return false, nil
	}
	report := u.ToolChanges(d)
	if report.Quiet() {
		return false, nil
	}
	book := u.Pins()
	for _, name := range report.Differences() {
		text, err := book.Difference(bridge.Pinned(d), name)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(u.stdio.Out, "%s\n%s\n", printable(name), text)
	}
	if !yes && !u.agreed("Accept this?") {
		return false, errors.New("nothing was accepted; --yes accepts without asking")
	}
	names, err := book.Approve(bridge.Pinned(d))
	if err != nil {
		return false, err
	}
	fmt.Fprintf(u.stdio.Out, "Accepted: %s\n", printable(strings.Join(names, ", ")))
	return true, nil
}

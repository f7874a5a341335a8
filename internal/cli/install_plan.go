package cli

import (
	"fmt"

	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// planned is one file of a client, for people and for JSON.
type planned struct {
	Client  string   `json:"client"`
	Title   string   `json:"title"`
	File    string   `json:"file"`
	Action  string   `json:"action"` // add, change, remove or none
	Written bool     `json:"written"`
	Backup  string   `json:"backup,omitempty"`
	Diff    string   `json:"diff,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Error   string   `json:"error,omitempty"`

	Foreign string          `json:"foreign,omitempty"` // what an entry of the name starts now
	Hidden  bool            `json:"-"`                 // the diff does not show everything
	Moved   []connect.Moved `json:"moved,omitempty"`
	Left    []connect.Left  `json:"left,omitempty"`
	Tokens  *saving         `json:"tokens,omitempty"`

	changes []connect.Change // the client's file is the last
}

// installPlans makes the changes that connect clients.
func (u *ui) installPlans(m connect.Machine, targets []definitions.Target, start connect.Start) []planned {
	var plans []planned
	for _, t := range targets {
		var notes []string
		p := u.plan(m, t, func(k connect.Kept) (connect.Change, string, error) {
			notes = clientNotes(m, k)
			action := "add"
			if len(k.Own) > 0 {
				action = "change"
			}
			if k.Foreign != "" {
				action = "replace"
			}
			change, err := k.Install(start)
			return change, action, err
		})
		p.Notes = append(notes, p.Notes...)
		plans = append(plans, p)
	}
	return plans
}

// start returns how clients start this program, and what people should know about
// that. It fails if the program is where it will not stay.
func (f *clientFlags) start(m connect.Machine) (connect.Start, []string, error) {
	program := m.Running().Find()
	if f.Project {
		start := program.Shared()
		note := fmt.Sprintf("The entry starts '%s', without a path, for everyone who works in this folder. Each of them needs %s in the search path", start, start.Command)
		if !onPath(start.Command) {
			note += ", and so do you: it is not in yours"
		}
		return start, []string{note + "."}, nil
	}
	start := program.Start()
	switch l := program.Launcher; {
	case l != nil:
		note := fmt.Sprintf("The entry starts '%s', because this program will not stay: %s.", start, program.Vanishes)
		if l.Node {
			note += " The client needs Node.js in its search path."
		}
		return start, []string{note}, nil
	case program.Cached:
		return start, nil, fmt.Errorf("%s will not stay: %s. Install the program, or put it into a folder of the search path such as ~/.local/bin, and run this again from there", program.Path, program.Vanishes)
	case program.Vanishes != "":
		return start, []string{fmt.Sprintf("%s will not stay: %s. Put the program into a folder of the search path, such as ~/.local/bin, and run this again.", program.Path, program.Vanishes)}, nil
	}
	return start, nil, nil
}

// plan makes the change of one client's file.
func (u *ui) plan(m connect.Machine, t definitions.Target, make func(connect.Kept) (connect.Change, string, error)) planned {
	p := planned{Client: t.Client.Name, Title: t.Client.Title, File: t.File, Action: "none"}
	kept, err := m.Look(t)
	if err == nil {
		var action string
		var change connect.Change
		change, action, err = make(kept)
		if err == nil && !change.Same() && (kept.Exists || len(change.After) > 0) {
			p.Action, p.changes = action, []connect.Change{change}
			if action == "replace" {
				p.Foreign = kept.Foreign
			}
			p.show(kept)
		}
	}
	if err != nil {
		p.Error = err.Error()
	}
	return p
}

// show formats the diff of all changes.
func (p *planned) show(kept connect.Kept) {
	for _, change := range p.changes {
		hide := kept.Hide()
		p.Diff += change.Diff(func(line string) string {
			shown := hide(line)
			p.Hidden = p.Hidden || shown != line
			return shown
		})
		p.Notes = append(p.Notes, change.Notes()...)
	}
}

// clientNotes says what is wrong with a client's connection besides its file.
func clientNotes(m connect.Machine, k connect.Kept) (out []string) {
	if k.Fleeting != "" {
		out = append(out, "The entry that is there does not last: "+k.Fleeting+".")
	}
	if note := m.Trust(k.Target); note != "" {
		out = append(out, note)
	}
	return out
}

// refuseForeign turns a plan that would replace the entry of another program into
// an error, if no one is asked.
func (f *clientFlags) refuseForeign(p *planned) {
	if p.Foreign != "" && f.Yes && !f.force && !f.DryRun && p.Error == "" {
		p.Error = fmt.Sprintf("%s has an entry named %s that starts another program: %s. Rename it, or replace it: sallyport install %s --force", p.File, connect.Name, p.Foreign, p.Client)
		p.Action, p.changes, p.Diff, p.Moved, p.Left, p.Hidden = "none", nil, "", nil, nil, false
	}
}

// show prints the changes, and returns how many there are and how many cannot be
// made.
func (f *clientFlags) show(u *ui, action string, plans []planned, notes []string) (todo, failed int) {
	for i := range plans {
		p := &plans[i]
		f.refuseForeign(p)
		if p.Error != "" {
			failed++
		} else {
			todo += len(p.changes)
		}
		if f.JSON {
			continue
		}
		switch {
		case p.Error != "":
			fmt.Fprintf(u.stdio.Err, "sallyport: %s: %s\n", p.Title, escaped(p.Error))
		case p.Action == "none" && action != "uninstall":
			fmt.Fprintf(u.stdio.Out, "%s is connected already (%s)\n", p.Title, printable(p.File))
		case p.Action == "none":
			fmt.Fprintf(u.stdio.Out, "%s is not connected (%s)\n", p.Title, printable(p.File))
		default:
			fmt.Fprintf(u.stdio.Out, "%s\n%s\n", p.Title, indented(escaped(p.Diff)))
		}
		if p.Hidden {
			fmt.Fprintln(u.stdio.Out, "  Secrets are not shown; the files have them.")
		}
		if p.Foreign != "" && p.Error == "" {
			fmt.Fprintf(u.stdio.Out, "  Replaces the entry named %s, which starts another program: %s\n", connect.Name, escaped(p.Foreign))
		}
		for _, note := range p.Notes {
			fmt.Fprintf(u.stdio.Out, "  Note: %s\n", escaped(note))
		}
		u.describeTakeOver(p)
	}
	if !f.JSON && todo > 0 {
		u.warn(notes)
	}
	return todo, failed
}

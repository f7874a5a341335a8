package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/connect/o200k"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// saving is what an agent no longer reads once its servers are moved.
type saving struct {
	Before     int      `json:"before"` // tokens of the tools of all servers, in o200k_base
	After      int      `json:"after"`  // of Sallyport's
	Tools      int      `json:"tools"`
	NotCounted []string `json:"notCounted,omitempty"`
}

// takeOver moves the servers of clients behind Sallyport.
func (c *installCmd) takeOver(u *ui, m connect.Machine, targets []definitions.Target, start connect.Start, notes []string) error {
	if c.Project {
		return errors.New("--take-over is for your own files; review a project's servers with: sallyport servers trust")
	}
	plans, err := c.takeOverPlans(u, m, targets, start)
	if err != nil {
		return err
	}
	return c.carryOut(u, "take-over", plans, notes)
}

// takeOverPlans makes the changes that move the servers of clients.
func (c *installCmd) takeOverPlans(u *ui, m connect.Machine, targets []definitions.Target, start connect.Start) ([]planned, error) {
	if sources := u.Settings.Servers.Sources; !slices.Contains(sources, "*") && !slices.Contains(sources, definitions.NameMCPs) {
		return nil, errors.New("the setting servers.sources leaves out mcps, so that servers in ~/MCPs would be lost: add it")
	}
	sys, err := u.compose(&composeFlags{waits: true})
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	mover := connect.NewMover(m, sys.Library)
	var plans []planned
	for _, t := range targets {
		p := planned{Client: t.Client.Name, Title: t.Client.Title, File: t.File, Action: "none"}
		if err := planTakeOver(m, mover, t, start, &p); err != nil {
			p.Error = err.Error()
		}
		plans = append(plans, p)
	}
	for i := range plans {
		p := &plans[i]
		if c.refuseForeign(p); len(p.Moved) == 0 {
			continue
		}
		if p.Tokens, err = c.count(u, sys, mover, p.Moved, start); err != nil {
			p.Error = err.Error()
		}
	}
	return plans, u.ctx.Err()
}

func planTakeOver(m connect.Machine, mover *connect.Mover, t definitions.Target, start connect.Start, p *planned) error {
	kept, err := m.Look(t)
	if err != nil {
		return err
	}
	plan, err := mover.Plan(kept, start)
	if err != nil {
		return err
	}
	p.Left, p.Notes = plan.Left, clientNotes(m, kept)
	if len(plan.Changes) == 0 {
		return nil
	}
	p.Action, p.changes, p.Moved, p.Foreign = "take-over", plan.Changes, plan.Moved, kept.Foreign
	p.show(kept)
	return nil
}

// count starts the servers that would be moved, and Sallyport as the client
// would start it, and counts what their lists of tools take in a context.
func (c *installCmd) count(u *ui, sys *app.System, mover *connect.Mover, moved []connect.Moved, start connect.Start) (*saving, error) {
	var mu sync.Mutex
	var work sync.WaitGroup
	places := make(chan struct{}, 4)
	s := &saving{}
	listed := []string{""} // the first is ours
	for _, one := range moved {
		d, ok := sys.Library.Current(false).Get(one.Name)
		if !ok || d.File != one.File && !slices.Contains(mover.From(one.Name), d.File) {
			s.NotCounted = append(s.NotCounted, one.Name+": another definition of that name counts")
			continue
		}
		work.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			ctx, cancel := upstream.WithTimeout(u.ctx, c.Timeout)
			defer cancel()
			found, err := sys.Bridge.Try(ctx, authz.Local("sallyport"), d.Name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.NotCounted = append(s.NotCounted, d.Name+": "+d.Redact(firstLine(err.Error())))
				return
			}
			for _, one := range found.Tools {
				if d.ToolAllowed(one.Name) {
					listed = append(listed, shownTool(&one))
					s.Tools++
				}
			}
		})
	}
	work.Wait()
	slices.Sort(s.NotCounted)
	ctx, cancel := context.WithTimeout(u.ctx, c.Timeout)
	defer cancel()
	launch := definitions.New(connect.Name, "", definitions.Launch{Command: start.Command, Args: start.Args}).Launch()
	health, err := connect.Check(ctx, launch, os.Environ(), u.Version)
	if err != nil {
		return nil, fmt.Errorf("sallyport itself does not start as the client would start it: %w", err)
	}
	listed[0] = health.Shown
	for i, text := range listed {
		n, err := o200k.Count(text)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			s.After = n
		} else {
			s.Before += n
		}
	}
	return s, nil
}

// shownTool returns what a client tells a model about a tool.
func shownTool(t *tool.Tool) string {
	text, err := json.Marshal(struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}{t.Name, t.Description, t.InputSchema})
	if err != nil {
		return t.Name + t.Description
	}
	return string(text)
}

// describeTakeOver prints what a plan moves, and what that saves.
func (u *ui) describeTakeOver(p *planned) {
	for _, one := range p.Moved {
		summary := one.Summary()
		if summary != "" {
			summary = " (" + summary + ")"
		}
		where := "moves to"
		if one.Shared {
			where = "is switched off here; the same definition is in"
		}
		fmt.Fprintf(u.stdio.Out, "  %s %s %s%s\n", printable(one.Name), where, printable(one.File), escaped(summary))
	}
	for _, one := range p.Left {
		fmt.Fprintf(u.stdio.Out, "  %s stays: %s\n", printable(one.Name), escaped(one.Reason))
	}
	if s := p.Tokens; s != nil {
		fmt.Fprintf(u.stdio.Out, "  Tokens (o200k_base) that the agent reads: %d for %s before, %d for run_python after\n", s.Before, count(s.Tools, "tool"), s.After)
		if len(s.NotCounted) > 0 {
			fmt.Fprintf(u.stdio.Out, "  Not counted: %s\n", escaped(strings.Join(s.NotCounted, "; ")))
		}
	}
}

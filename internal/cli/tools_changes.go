package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

type toolsRefreshCmd struct {
	composeFlags
	Servers []string      `arg:"" optional:"" help:"Servers to ask (default: all)." placeholder:"NAME" complete:"servers"`
	Timeout time.Duration `help:"How long the command may take." default:"5m" type:"seconds"`
}

// Help implements kong's HelpProvider.
func (*toolsRefreshCmd) Help() string {
	return `Examples:
  sallyport tools refresh
  sallyport tools refresh github`
}

// Run implements the command.
func (c *toolsRefreshCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	var names []string
	if len(c.Servers) == 0 {
		for _, e := range sys.Catalog.Entries() {
			names = append(names, e.Name)
		}
	}
	for _, text := range c.Servers {
		e, err := entryOf(sys, text)
		if err != nil {
			return err
		}
		names = append(names, e.Name)
	}
	ctx, cancel := context.WithTimeout(u.ctx, c.Timeout)
	defer cancel()
	var mu sync.Mutex
	failed := false
	each(names, func(name string) {
		e, err := sys.Catalog.List(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = true
			u.starts.aside(func() { fmt.Fprintf(u.stdio.Out, "%s: %s\n", invisible.Line(name), invisible.Escape(err.Error())) })
			return
		}
		text := count(len(e.Listing.Tools), "tool")
		if report, err := sys.Pins.Status(pinsOf(e.Server)); err == nil && !report.Quiet() {
			text += fmt.Sprintf(", %d changed, %d new since they were accepted", len(report.Changed), len(report.New))
			if others := slices.Concat(report.OtherChanged, report.OtherNew); len(others) > 0 {
				text += "; changed or new, too: " + invisible.Line(strings.Join(others[:min(5, len(others))], ", "))
				if more := len(others) - 5; more > 0 {
					text += fmt.Sprintf(" and %d more", more)
				}
			}
		}
		u.starts.aside(func() { fmt.Fprintf(u.stdio.Out, "%s: %s\n", invisible.Line(name), text) })
	})
	if failed {
		return exitError(exitFailed)
	}
	return nil
}

type toolsApproveCmd struct {
	composeFlags
	Server string   `arg:"" help:"The server's name." complete:"servers"`
	Tools  []string `arg:"" optional:"" help:"Only these tools, or \"prompt NAME\", \"resource URI\", \"template URI\", \"instructions\"." placeholder:"TOOL" complete:"tools-of"`
}

// Help implements kong's HelpProvider.
func (*toolsApproveCmd) Help() string {
	return `Models read the descriptions of tools, prompts and resources, and a server's instructions. If they change, the server may have been compromised: results report the change or, with servers.changedTools=refuse, changed items can neither be read nor called. Review the change first. The command prints what it accepts.

Example:
  sallyport tools show github create_issue
  sallyport tools approve github
  sallyport tools approve github create_issue "prompt review" instructions`
}

// Run implements the command.
func (c *toolsApproveCmd) Run(u *ui) error {
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	done, err := u.approveTools(sys, c.Server, c.Tools...)
	if err != nil {
		return err
	}
	if len(done) == 0 {
		fmt.Fprintln(u.stdio.Out, "Nothing has changed.")
		return nil
	}
	fmt.Fprintf(u.stdio.Out, "Accepted: %s\n", invisible.Line(strings.Join(done, ", ")))
	return nil
}

// approveTools accepts the descriptions of a server's tools as they were last
// read.
func (u *ui) approveTools(sys *app.System, server string, tools ...string) ([]string, error) {
	e, err := entryOf(sys, server)
	if err != nil {
		return nil, err
	}
	report, err := sys.Pins.Status(pinsOf(e.Server))
	if err != nil {
		return nil, err
	}
	for i, t := range tools {
		if e.Listing != nil && !slices.Contains(report.Differences(), t) {
			if found, err := tool.Find(e.Listing.Tools, t); err != nil {
				return nil, err
			} else if found != nil {
				t = found.Name
				tools[i] = t
			}
		}
		names := slices.DeleteFunc(report.Differences(), func(name string) bool { return name != t })
		switch len(names) {
		case 0:
			return nil, errors.New("nothing changed in " + invisible.Line(t))
		case 1:
		default:
			return nil, fmt.Errorf("a tool and something else are both called %s; approve all of %s, or nothing", invisible.Line(t), invisible.Line(e.Name))
		}
	}
	if report.Quiet() {
		return nil, nil
	}
	for _, name := range report.Differences() {
		if len(tools) > 0 && !slices.Contains(tools, name) {
			continue
		}
		text, err := sys.Pins.Difference(pinsOf(e.Server), name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(u.stdio.Out, "%s\n%s\n", invisible.Line(name), text)
	}
	return sys.Pins.Approve(pinsOf(e.Server), tools...)
}

// pinsOf returns the pins of a server in the catalog.
func pinsOf(s catalog.Server) pins.Server { return pins.Server{Name: s.Name, Key: s.Program} }

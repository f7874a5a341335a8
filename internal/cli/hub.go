package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/invisible"
)

type hubCmd struct {
	Status  hubStatusCmd  `cmd:"" default:"withargs" help:"Show the hubs that run, their clients, and why there are several."`
	Stop    hubStopCmd    `cmd:"" help:"End the hubs once nothing runs in them. A client that is used again starts a new one."`
	Restart hubRestartCmd `cmd:"" help:"End the hubs, so that their clients start new ones."`
	Logs    hubLogsCmd    `cmd:"" help:"Print what the hub has logged."`
	Run     hubRunCmd     `cmd:"" help:"Run the hub in this process, for a service manager."`
}

type hubStatusCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*hubStatusCmd) Help() string {
	return `The hub is the one process that runs code, servers and sessions for all of your clients. 'sallyport serve' starts it where it does not run; it ends when it has had no client for a while (setting hub.idle).

Clients whose settings say differently who runs code, or how it is confined, have hubs of their own, and so have those of another version of Sallyport. The difference is shown.

Examples:
  sallyport hub status
  sallyport hub status --json | jq '.hubs[].clients[].name'`
}

// hubStatus is a hub as it is printed.
type hubStatus struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	*control.Hub
	Sessions int `json:"sessions"`
	// Differs has the settings in which it differs from those of this command.
	Differs map[string]difference `json:"differs,omitempty"`
}

type difference struct {
	Here  string `json:"here"`
	There string `json:"there"`
}

// differences compares what two hubs depend on.
func differences(here, there map[string]string) map[string]difference {
	out := map[string]difference{}
	for _, both := range []map[string]string{here, there} {
		for name := range both {
			if here[name] != there[name] {
				out[name] = difference{here[name], there[name]}
			}
		}
	}
	return out
}

// Run implements the command.
func (c *hubStatusCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	hubs, others, problems := u.Hubs(u.ctx)
	for _, p := range problems {
		fmt.Fprintln(u.stdio.Err, "sallyport:", p)
	}
	all, here := []hubStatus{}, u.HubSettings()
	for _, h := range hubs {
		one := hubStatus{PID: h.PID, Version: h.Version, Started: h.Started, Hub: h.Hub, Sessions: len(h.Sessions)}
		if h.Hub.Key != u.HubKey() {
			one.Differs = differences(here, h.Hub.Settings)
		}
		all = append(all, one)
	}
	if c.JSON {
		return u.printJSON(struct {
			Hubs []hubStatus `json:"hubs"`
			// Alone are processes that serve one client without a hub.
			Alone []int `json:"alone"`
		}{all, others})
	}
	if len(all) == 0 {
		fmt.Fprintln(u.stdio.Out, "No hub runs. 'sallyport serve', which clients start, starts it.")
	}
	for i, h := range all {
		if i > 0 {
			fmt.Fprintln(u.stdio.Out)
		}
		if err := c.print(u, h); err != nil {
			return err
		}
	}
	for _, pid := range others {
		fmt.Fprintf(u.stdio.Out, "Process %d serves a client without a hub.\n", pid)
	}
	return nil
}

// print prints one hub.
func (c *hubStatusCmd) print(u *ui, h hubStatus) error {
	w := u.stdio.Out
	fmt.Fprintf(w, "Hub %s: process %d, version %s, since %s, sessions: %d%s\n", h.Key, h.PID, printable(h.Version), ago(h.Started), h.Sessions, executions(h.Hub))
	if len(h.Differs) > 0 {
		fmt.Fprintln(w, "It is not the hub of the settings in force here:")
		for _, name := range slices.Sorted(maps.Keys(h.Differs)) {
			d := h.Differs[name]
			fmt.Fprintf(w, "  %s: %s there, %s here\n", name, valueOrNone(d.There), valueOrNone(d.Here))
		}
	}
	if len(h.Clients) == 0 {
		fmt.Fprintf(w, "It has no client, and ends when it has had none for %s.\n", h.Idle)
		return nil
	}
	t := u.table("CLIENT", "PROCESS", "SINCE", "RUNS", "WAITS", "DIRECTORY")
	for _, a := range h.Clients {
		name := "-"
		if a.Name != "" {
			name = printable(a.Name)
		}
		t.Row(name, fmt.Sprint(a.Process), ago(a.Since), fmt.Sprint(a.Running), fmt.Sprint(a.Waiting), printable(a.Dir))
	}
	return t.Write(w)
}

// executions says what runs and waits in a hub, if anything does.
func executions(h *control.Hub) string {
	if h.Running+h.Waiting == 0 {
		return ""
	}
	return fmt.Sprintf(", executions that run: %d, that wait: %d", h.Running, h.Waiting)
}

func valueOrNone(v string) string {
	if v == "" {
		return "nothing"
	}
	return invisible.Line(v)
}

// hubWait is the flag of the commands that end hubs.
type hubWait struct {
	Wait time.Duration `help:"How long to wait for code that runs; after that it is stopped." default:"30s" placeholder:"DURATION"`
	All  bool          `help:"End the hubs of all settings and versions, not only the one of the settings in force here."`
}

// end ends hubs and waits for that. It returns their numbers, and how many others
// there are.
func (c *hubWait) end(u *ui) (ended []int, others int, err error) {
	if err := u.configure(); err != nil {
		return nil, 0, err
	}
	hubs, _, problems := u.Hubs(u.ctx)
	for _, p := range problems {
		fmt.Fprintln(u.stdio.Err, "sallyport:", p)
	}
	for _, h := range hubs {
		if !c.All && h.Hub.Key != u.HubKey() {
			others++
			continue
		}
		if err := u.endHub(h, c.Wait); err != nil {
			return ended, others, fmt.Errorf("hub %d: %w", h.PID, err)
		}
		ended = append(ended, h.PID)
	}
	return ended, others, nil
}

// hubEnd is how long the end of a hub may take: it suspends sessions.
const hubEnd = 60 * time.Second

// endHub ends one hub.
func (u *ui) endHub(h app.RunningHub, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(u.ctx, wait+hubEnd)
	defer cancel()
	if err := h.Control.Stop(ctx, wait); err != nil && !errors.Is(err, control.ErrGone) {
		return err
	}
	for {
		if _, err := h.Control.Process(ctx); errors.Is(err, control.ErrGone) {
			place, err := u.hubPlace()
			if err != nil {
				return err
			}
			place.Key = h.Hub.Key
			return place.Ended(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it has not ended: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type hubStopCmd struct{ hubWait }

// Help implements kong's HelpProvider.
func (*hubStopCmd) Help() string {
	return `Named sessions are suspended to disk; the sessions without a name, and servers, end. Clients stay connected: the next call starts a new hub.

Examples:
  sallyport hub stop
  sallyport hub stop --all --wait 5s`
}

// Run implements the command.
func (c *hubStopCmd) Run(u *ui) error {
	ended, others, err := c.end(u)
	for _, pid := range ended {
		fmt.Fprintf(u.stdio.Out, "Hub %d has ended.\n", pid)
	}
	if err == nil && len(ended) == 0 {
		fmt.Fprintln(u.stdio.Out, "No hub runs with these settings.")
	}
	if err == nil && others > 0 {
		fmt.Fprintf(u.stdio.Out, "Hubs with other settings: %d ('sallyport hub status' says which, and --all ends them).\n", others)
	}
	return err
}

type hubRestartCmd struct{ hubWait }

// Help implements kong's HelpProvider.
func (*hubRestartCmd) Help() string {
	return `As 'sallyport hub stop'. A hub that clients need starts again with their next call, with the settings as they are then.

Example:
  sallyport hub restart`
}

// Run implements the command.
func (c *hubRestartCmd) Run(u *ui) error {
	ended, _, err := c.end(u)
	if err != nil {
		return err
	}
	place, err := u.hubPlace()
	if err != nil {
		return err
	}
	if err := place.Begin(u.ctx, func(ctx context.Context) error {
		return u.startHub(ctx, place, u.origin(&composeFlags{}))
	}); err != nil {
		return err
	}
	if len(ended) == 0 {
		fmt.Fprintln(u.stdio.Out, "No hub ran with these settings; one does now.")
		return nil
	}
	fmt.Fprintln(u.stdio.Out, "The hub runs again.")
	return nil
}

type hubLogsCmd struct {
	Key string `arg:"" optional:"" help:"The hub, as 'sallyport hub status' names it; by default the one of the settings in force here." placeholder:"HUB"`
}

// Help implements kong's HelpProvider.
func (*hubLogsCmd) Help() string {
	return `The log says why a hub ended, and what went wrong with its servers. It begins anew at 4 MiB.

Example:
  sallyport hub logs | tail`
}

// Run implements the command.
func (c *hubLogsCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	place, err := u.hubPlace()
	if err != nil {
		return err
	}
	if c.Key != "" {
		if strings.ContainsAny(c.Key, `/\`) {
			return fmt.Errorf("%q is not the name of a hub", c.Key)
		}
		place.Key = c.Key
	}
	f, err := os.Open(filepath.Clean(hubLog(place)))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("hub %s has logged nothing; 'sallyport hub status' names those that run", invisible.Line(place.Key))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(u.stdio.Out, f)
	return err
}

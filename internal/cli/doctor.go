package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
)

type doctorCmd struct {
	composeFlags
	Servers bool `help:"Start each MCP server, too."`
	Fix     bool `help:"Repair what can be repaired without losing anything: each change is shown first, and made if you agree."`
	Yes     bool `short:"y" help:"With --fix: do not ask." name:"yes"`
	JSON    bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*doctorCmd) Help() string {
	return `Starts a sandbox, runs code in it, and reports for each limit whether a kernel enforces it (hard), a watcher does (soft), or nothing does (absent). Looks at the program's own files, the running processes, the clock, the disk and the rules for calls, too. Exits with 1 if run_python cannot run here.

Examples:
  sallyport doctor
  sallyport doctor --servers
  sallyport doctor --fix
  sallyport doctor --json | jq .usable`
}

// pureOnly says what code cannot do in a sandbox of one process.
const pureOnly = "code starts no other processes, its threads take turns, and C extensions such as numpy do not work"

// isolates says in words what separates code from this computer.
func isolates(e *sandbox.Report) string {
	text := "isolation by " + e.Isolation.String()
	if e.Isolation == sandbox.WasmIsolation {
		text += " (WebAssembly, in a process that cannot open files, use the network or start programs)"
	}
	return text
}

// diagnosis is what doctor found.
type diagnosis struct {
	Usable  bool        `json:"usable"`
	Version versionInfo `json:"version"`
	// Directories are where the program keeps its own files. If one of them
	// cannot be used, nothing else is examined.
	Directories []app.Directory `json:"directories"`
	Engine      *sandbox.Report `json:"engine,omitempty"`
	// Choice says for each engine why it was chosen or not, if the setting
	// engine leaves it open.
	Choice  []app.Verdict  `json:"choice,omitempty"`
	Policy  string         `json:"policy"` // "ok", or what is missing
	Trial   trial          `json:"trial"`
	Servers serverSummary  `json:"servers"`
	Hub     hubDiagnosis   `json:"hub"`
	Audit   auditDiagnosis `json:"audit"`
	// Checks are those that need no sandbox.
	Checks []app.Finding `json:"checks"`
	// Services are the batch services that code can be sent to.
	Services []*sandbox.Report `json:"batchServices,omitempty"`
}

// hubDiagnosis says whether clients share a hub here.
type hubDiagnosis struct {
	Used bool   `json:"used"`
	Why  string `json:"why,omitempty"` // why not
	Key  string `json:"key,omitempty"`
	PID  int    `json:"pid,omitempty"` // 0: it does not run
	// Clients is how many it has.
	Clients int `json:"clients"`
	// Others are the processes of hubs with other settings.
	Others []int `json:"others,omitempty"`
	// Alone are processes that serve a client without a hub.
	Alone []int `json:"alone,omitempty"`
}

// diagnoseHub finds the hub of the settings.
func (u *ui) diagnoseHub(ctx context.Context) hubDiagnosis {
	running, alone, _ := u.Hubs(ctx)
	if !u.Settings.Hub.Enabled {
		return hubDiagnosis{Why: "hub.enabled is false", Alone: alone}
	}
	place, err := u.hubPlace()
	if err != nil {
		return hubDiagnosis{Why: err.Error(), Alone: alone}
	}
	d := hubDiagnosis{Used: true, Key: place.Key, Alone: alone}
	for _, h := range running {
		if h.Hub.Key == place.Key {
			d.PID, d.Clients = h.PID, len(h.Hub.Clients)
		} else {
			d.Others = append(d.Others, h.PID)
		}
	}
	if d.PID == 0 {
		if err := place.Startable(); err != nil {
			d.Used, d.Why = false, err.Error()
		}
	}
	return d
}

func (d *hubDiagnosis) print(w io.Writer) {
	switch {
	case !d.Used:
		fmt.Fprintf(w, "note  each client has a process of its own, without a hub: %s\n", d.Why)
	case d.PID == 0:
		fmt.Fprintln(w, "ok    hub: the first client starts it")
	default:
		fmt.Fprintf(w, "ok    hub: process %d, clients: %d\n", d.PID, d.Clients)
	}
	if len(d.Others) > 0 {
		fmt.Fprintf(w, "note  hubs with other settings: %d ('sallyport hub status' says which)\n", len(d.Others))
	}
	if len(d.Alone) > 0 {
		fmt.Fprintf(w, "note  clients without the hub: %d ('sallyport hub status' says which)\n", len(d.Alone))
	}
}

// trial is the outcome of a real run.
type trial struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
	FirstMs int64  `json:"firstMs,omitempty"` // from nothing to the first result
	NextMs  int64  `json:"nextMs,omitempty"`  // the same code again
	Skipped bool   `json:"skipped,omitempty"`
}

type serverSummary struct {
	Count    int              `json:"count"`
	Shared   map[sharedBy]int `json:"shared,omitempty"` // how many have one server for whom
	Problems []string         `json:"problems,omitempty"`
}

// Run implements the command.
func (c *doctorCmd) Run(u *ui) error {
	d, err := c.diagnose(u)
	if err != nil {
		return err
	}
	return c.report(u, d)
}

// repair shows each change that helps, and makes those that the user wants, until
// there are none: what a change lets the program read may be wrong, too.
func (c *doctorCmd) repair(u *ui) {
	seen := map[string]bool{}
	for again := true; again; {
		again = false
		for _, f := range u.SelfCheck(u.ctx) {
			what := f.Check + f.Text
			if f.Fix == "" || seen[what] {
				continue
			}
			seen[what] = true
			said := u.stdio.Out
			if c.JSON {
				said = u.stdio.Err
			}
			fmt.Fprintf(said, "%s\n", printable(f.Text))
			question := "  to fix it: " + printable(f.Fix)
			switch {
			case c.Yes:
				fmt.Fprintln(said, question)
			case c.JSON || !terminal.Is(u.stdio.In):
				fmt.Fprintln(said, question+" (--yes does it)")
				continue
			case !u.agreed(question + "?"):
				continue
			}
			if err := f.Repair(); err != nil {
				fmt.Fprintf(said, "  that failed: %s\n", printable(err.Error()))
			}
			again = true
		}
	}
}

// diagnose examines this machine.
func (c *doctorCmd) diagnose(u *ui) (*diagnosis, error) {
	d := &diagnosis{Version: readVersion()}
	if err := u.loadSettings(c.flags()...); err != nil {
		rules := u.brokenRules(err)
		if rules == nil {
			return nil, err
		}
		d.Checks = app.CheckRules(rules)
		return d, nil // nothing is looked at without settings
	}
	if c.Fix {
		c.repair(u)
	}
	d.Checks = u.SelfCheck(u.ctx)
	var ok bool
	if d.Directories, ok = u.TryDirectories(); !ok {
		return d, nil // nothing is started that would use them
	}
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	u.awaitImage(sys.Core)
	ctx, cancel := context.WithTimeout(u.ctx, 2*time.Minute)
	defer cancel()

	d.Engine, err = sys.Engine.Probe(ctx)
	if err != nil {
		return nil, fmt.Errorf("probing the engine: %w", err)
	}
	d.Policy = "ok"
	if !d.Engine.Usable {
		d.Policy = "not checked, because the engine cannot run"
	} else if verdict := sys.Gate.Decide(authz.Local("sallyport doctor"), authz.RunCode{Engine: d.Engine}); verdict.Effect != authz.Allow {
		d.Policy = verdict.Reason.Error()
		var v *authz.Violation
		if !errors.As(verdict.Reason, &v) && verdict.Rule != authz.RuleTools {
			return nil, verdict.Reason
		}
	}
	if d.Engine.Usable && d.Policy == "ok" {
		d.Trial = tryOut(ctx, sys)
		if sys.Engine.Name() != d.Engine.Backend { // that failed to start, and another took its place
			if d.Engine, err = sys.Engine.Probe(ctx); err != nil {
				return nil, fmt.Errorf("probing the engine: %w", err)
			}
		}
	} else {
		d.Trial.Skipped = true
	}
	if open, ok := sys.Engine.(*app.Choice); ok {
		d.Choice = open.Explain(ctx)
	}
	d.Services = sys.ProbeBatch(ctx)
	d.Servers = serverSummary{Count: len(sys.Servers.Definitions()), Shared: countShared(u.App, sys.Servers.Definitions()), Problems: sys.Problems}
	if c.Servers {
		d.Checks = append(d.Checks, c.tryServers(u, sys)...)
	}
	d.Checks = append(d.Checks, u.fleetingConnections()...)
	d.Hub = u.diagnoseHub(ctx)
	d.Audit = u.diagnoseAudit(ctx, sys)
	d.Usable = d.Engine.Usable && d.Policy == "ok" && d.Trial.OK
	return d, nil
}

// tryServers starts each server that code may be granted.
func (c *doctorCmd) tryServers(u *ui, sys *app.System) []app.Finding {
	var found []app.Finding
	for _, d := range sys.Servers.Definitions() {
		if d.Disabled || d.Offer != "" {
			continue
		}
		ctx, cancel := upstream.WithTimeout(u.ctx, cmp.Or(d.StartTimeout, u.Settings.Servers.StartTimeout))
		t, err := sys.Bridge.Try(ctx, authz.Local("sallyport doctor"), d.Name)
		cancel()
		f := app.Finding{Check: "servers", Level: app.FindingOK}
		if err != nil {
			f.Level, f.Text = app.FindingWarn, fmt.Sprintf("server %s: %v", d.Name, err)
		} else {
			f.Text = fmt.Sprintf("server %s: %s, started in %d ms", d.Name, count(len(t.Tools), "tool"), t.Started.Milliseconds())
		}
		found = append(found, f)
	}
	return found
}

// report prints a diagnosis.
func (c *doctorCmd) report(u *ui, d *diagnosis) error {
	var err error
	if c.JSON {
		err = u.printJSON(d)
	} else {
		// Some of this comes from engines and images.
		var text strings.Builder
		d.print(&text)
		for line := range strings.Lines(invisible.Escape(text.String())) {
			if _, err = io.WriteString(u.stdio.Out, u.paintMark(line)); err != nil {
				break
			}
		}
	}
	if err == nil && !d.Usable {
		err = exitError(exitFailed)
	}
	return err
}

// marks are the words that lines begin with, and how they look.
var marks = map[string]terminal.Style{"ok": terminal.Green, "warn": terminal.Yellow, "FAIL": terminal.Red}

// paintMark paints the word that a line begins with.
func (u *ui) paintMark(line string) string {
	word, rest, _ := strings.Cut(line, " ")
	style, ok := marks[word]
	if !ok {
		return line
	}
	return u.paint(u.stdio.Out, style, word) + " " + rest
}

// tryOut runs code twice through everything that run_python uses.
func tryOut(ctx context.Context, sys *app.System) trial {
	var t trial
	for i, out := range []*int64{&t.FirstMs, &t.NextMs} {
		start := time.Now()
		r := sys.Broker.Execute(ctx, broker.Request{Principal: authz.Local("sallyport doctor"), RequestID: "doctor", Submission: broker.Submission{Code: "print(6 * 7)"}})
		*out = time.Since(start).Milliseconds()
		if r.IsError() || len(r.Stdout) != 1 || r.Stdout[0] != "42" {
			t.Error = fmt.Sprintf("run %d: %s", i+1, r.Text())
			return t
		}
	}
	t.OK = true
	return t
}

func (d *diagnosis) print(w io.Writer) {
	mark := func(ok bool) string {
		if ok {
			return "ok  "
		}
		return "FAIL"
	}
	fmt.Fprintf(w, "sallyport %s on %s\n\n", d.Version.Version, d.Version.Platform)
	for _, dir := range d.Directories {
		switch {
		case dir.Problem != "":
			fmt.Fprintf(w, "FAIL  %s\n", dir.Problem)
		case dir.Warning != "":
			fmt.Fprintf(w, "warn  %s\n", dir.Warning)
		default:
			fmt.Fprintf(w, "ok    %s directory %s\n", dir.Name, dir.Path)
		}
	}
	for _, f := range d.Checks {
		fmt.Fprintf(w, "%-4s  %s\n", f.Level, strings.ReplaceAll(f.Text, "\n", "\n      "))
		if f.Fix != "" {
			fmt.Fprintf(w, "      to fix it: %s ('sallyport doctor --fix')\n", f.Fix)
		}
	}
	e := d.Engine
	if e == nil {
		fmt.Fprintln(w, "\nrun_python cannot run here.")
		return
	}
	// An engine that does not run code is not ok, whatever its report says.
	failed := e.Usable && !d.Trial.OK && !d.Trial.Skipped
	fmt.Fprintf(w, "%s  engine %s", mark(e.Usable && !failed), e.Backend)
	if e.Usable {
		fmt.Fprint(w, ": "+isolates(e))
	}
	if failed {
		fmt.Fprint(w, ", but the trial run failed: see below")
	}
	fmt.Fprintln(w)
	if e.Runtime != "" {
		fmt.Fprintf(w, "      Python in the sandbox: %s\n", e.Runtime)
	}
	if e.Single {
		fmt.Fprintln(w, "      "+pureOnly)
	}
	if e.NoFolders != "" {
		fmt.Fprintf(w, "      folders of this computer cannot be mounted: %s\n", e.NoFolders)
	}
	for _, v := range d.Choice {
		word := "not chosen"
		if v.Chosen {
			word = "chosen"
		}
		fmt.Fprintf(w, "      %-7s %s: %s\n", v.Engine, word, v.Why)
	}
	var resources []sandbox.Resource
	for r := range e.Limits {
		resources = append(resources, r)
	}
	slices.Sort(resources)
	for _, r := range resources {
		l := e.Limits[r]
		fmt.Fprintf(w, "      limit on %-10s %-6s %s\n", r, l.Enforcement, l.By)
	}
	switch {
	case !e.Usable:
		fmt.Fprintln(w, "--    policy: "+d.Policy)
	case d.Policy == "ok":
		fmt.Fprintln(w, "ok    policy")
	default:
		fmt.Fprintln(w, "FAIL  policy: "+d.Policy)
	}
	switch {
	case d.Trial.Skipped:
		fmt.Fprintln(w, "--    trial run: skipped")
	case d.Trial.OK:
		fmt.Fprintf(w, "ok    trial run: first result after %d ms, the next after %d ms\n", d.Trial.FirstMs, d.Trial.NextMs)
	default:
		fmt.Fprintf(w, "FAIL  trial run: %s\n", strings.ReplaceAll(d.Trial.Error, "\n", "\n      "))
	}
	fmt.Fprintf(w, "ok    MCP servers defined: %d%s\n", d.Servers.Count, describeShared(d.Servers.Shared))
	for _, p := range d.Servers.Problems {
		fmt.Fprintf(w, "warn  %s\n", p)
	}
	d.Hub.print(w)
	d.Audit.print(w)
	printFindings(w, e.Findings)
	for _, e := range d.Services {
		fmt.Fprintf(w, "\n%s  batch service %s", mark(e.Usable), e.Backend)
		if e.Usable && e.Isolation != sandbox.NoIsolation {
			fmt.Fprintf(w, ": isolation by %s", e.Isolation)
		}
		fmt.Fprintln(w)
		printFindings(w, e.Findings)
	}
	if d.Usable {
		fmt.Fprintln(w, "\nrun_python can run here.")
	} else {
		fmt.Fprintln(w, "\nrun_python cannot run here.")
	}
}

func printFindings(w io.Writer, findings []sandbox.Finding) {
	for _, f := range findings {
		word := "note"
		if f.Fatal {
			word = "FAIL"
		}
		fmt.Fprintf(w, "\n%s  %s\n", word, f.Title)
		if f.Detail != "" {
			fmt.Fprintf(w, "      %s\n", f.Detail)
		}
		if f.Remedy != "" {
			fmt.Fprintf(w, "      to fix it: %s\n", f.Remedy)
		}
	}
}

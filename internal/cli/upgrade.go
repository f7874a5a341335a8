package cli

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upgrade"
)

type upgradeCmd struct {
	Check          bool   `help:"Only report whether a newer release exists." xor:"what"`
	Undo           bool   `help:"Put back the executable that the last upgrade replaced." xor:"what,version"`
	Version        string `help:"Install this release instead of the newest." placeholder:"X.Y.Z" xor:"version"`
	AllowDowngrade bool   `help:"Install a release that is older than this one."`
	From           string `help:"Where releases are: an https URL laid out like the releases of a project at GitHub, or a directory with the files of one release. Signatures are always verified." placeholder:"URL|DIR"`
	JSON           bool   `help:"Print JSON." name:"json"`
}

// upgradeReport is what `upgrade --json` prints.
type upgradeReport struct {
	Current     string `json:"current"`           // the version of this executable
	Release     string `json:"release"`           // the verified release: the newest, or that of --version
	Newer       bool   `json:"newer"`             // whether the release is newer than this executable
	Installed   bool   `json:"installed"`         // whether the release was installed now
	InstalledBy string `json:"installedBy"`       // as in `version --json`
	Command     string `json:"command,omitempty"` // what upgrades it, if a package manager owns it
	Path        string `json:"path"`              // the executable
	TestKey     bool   `json:"testKey,omitempty"` // a test build, which trusts another key
}

// Help implements kong's HelpProvider.
func (*upgradeCmd) Help() string {
	return `Verifies the release's signature with the key in this executable, then its checksum, starts the new
executable once, and puts it in the place of this one. What runs already is not interrupted.
Nothing is sent but the requests for the files, and only this command looks for releases. An executable
that a package manager installed is left to it.

Examples:
  sallyport upgrade --check
  sallyport upgrade
  sallyport upgrade --version 1.2.3 --allow-downgrade
  sallyport upgrade --undo`
}

// Run implements the command.
func (c *upgradeCmd) Run(u *ui) error {
	path, err := app.Executable()
	if err != nil {
		return fmt.Errorf("the path of this executable is unknown: %w", err)
	}
	info := buildInfo()
	current := versionOf(version, info)
	by := u.InstalledBy(path, info, version != "")
	if by.Upgrade != "" && !c.Check {
		return fmt.Errorf("%s was installed by %s, which must replace it: %s", path, by.Name, by.Upgrade)
	}
	meter := u.silentMeter("upgrade")
	defer meter.end()
	up := u.Upgrader(path, c.From, meter.tell)
	if c.Undo {
		return c.undo(u, up, current.Version)
	}
	keys, test, err := upgrade.Keys()
	if err != nil {
		return err
	}
	if test {
		fmt.Fprintln(u.stdio.Err, "sallyport: this is a test build: it trusts a key of its own, not the project's")
	}
	up.Keys = keys
	wanted := strings.TrimPrefix(c.Version, "v")
	if c.Version != "" && !upgrade.Valid(wanted) {
		return fmt.Errorf("--version %s: want a version such as 1.2.3", c.Version)
	}
	if wanted == "" && current.Reason != "" && !c.Check {
		return fmt.Errorf("this executable has no version to compare with (%s): name the release to install with --version X.Y.Z", current.Reason)
	}
	meter.tell("looking for a release", 0, 0)
	release, err := up.Find(u.ctx, wanted)
	if err != nil {
		return err
	}
	order := upgrade.Compare(release.Version, current.Version)
	report := upgradeReport{Current: current.Version, Release: release.Version, Newer: order > 0, InstalledBy: by.Name, Command: by.Upgrade, Path: path, TestKey: test}
	switch {
	case c.Check || order == 0:
		meter.end()
		return c.print(u, report)
	case order < 0 && !c.AllowDowngrade:
		return fmt.Errorf("release %s is older than this executable, %s: add --allow-downgrade to install it", release.Version, current.Version)
	}
	if err := up.Install(u.ctx, release); err != nil {
		return c.explain(err, path)
	}
	meter.end()
	report.Installed = true
	return c.print(u, report)
}

func (c *upgradeCmd) undo(u *ui, up *upgrade.Upgrader, current string) error {
	previous, err := up.Undo(u.ctx)
	if err != nil {
		return c.explain(err, up.Path)
	}
	if c.JSON {
		return u.printJSON(upgradeReport{Current: current, Release: previous, Newer: upgrade.Compare(previous, current) > 0, Installed: true, Path: up.Path})
	}
	fmt.Fprintf(u.stdio.Out, "sallyport %s is back at %s; 'sallyport upgrade --undo' returns to %s.\n", printable(previous), up.Path, current)
	return nil
}

func (c *upgradeCmd) print(u *ui, r upgradeReport) error {
	if c.JSON {
		return u.printJSON(r)
	}
	out := u.stdio.Out
	switch {
	case r.Installed:
		fmt.Fprintf(out, "sallyport %s is installed at %s. It was %s: 'sallyport upgrade --undo' puts that back.\nWhat runs already keeps the old one: restart your MCP clients.\n", r.Release, r.Path, r.Current)
	case r.Newer:
		command := r.Command
		if command == "" {
			command = "sallyport upgrade"
		}
		fmt.Fprintf(out, "sallyport %s is available; this is %s. To install it: %s\n", r.Release, r.Current, command)
	case r.Release == r.Current:
		fmt.Fprintf(out, "sallyport %s is installed already.\n", r.Current)
	default:
		fmt.Fprintf(out, "This is sallyport %s; release %s is not newer.\n", r.Current, r.Release)
	}
	return nil
}

// explain adds what to do to an error.
func (c *upgradeCmd) explain(err error, path string) error {
	var readOnly *upgrade.NotWritableError
	if !errors.As(err, &readOnly) {
		return err
	}
	if runtime.GOOS == "windows" {
		return fmt.Errorf("%w: do it in a terminal of an administrator", err)
	}
	command := "sudo " + terminal.ShellWord(path) + " upgrade"
	for _, flag := range []struct {
		name, value string
		set         bool
	}{
		{"--undo", "", c.Undo},
		{"--version", c.Version, c.Version != ""},
		{"--allow-downgrade", "", c.AllowDowngrade},
		{"--from", c.From, c.From != ""},
	} {
		if flag.set {
			command += " " + flag.name
		}
		if flag.value != "" {
			command += " " + terminal.ShellWord(flag.value)
		}
	}
	return fmt.Errorf("%w: %s", err, command)
}

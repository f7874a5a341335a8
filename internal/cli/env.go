package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/environment"
)

type envCmd struct {
	List   envListCmd   `cmd:"" default:"withargs" help:"List the environments, and those of scripts."`
	Add    envAddCmd    `cmd:"" help:"Add an environment to the configuration file."`
	Show   envShowCmd   `cmd:"" help:"Print the packages of an environment, and where they come from."`
	Lock   envLockCmd   `cmd:"" help:"Choose the versions of all packages anew, and write them down."`
	Build  envBuildCmd  `cmd:"" help:"Build environments, so that code need not wait for them."`
	Remove envRemoveCmd `cmd:"" name:"rm" help:"Remove what was built."`
	Export envExportCmd `cmd:"" help:"Write an environment as an OCI archive."`
}

// Help implements kong's HelpProvider.
func (*envCmd) Help() string {
	return `Without a subcommand, lists the environments.

Examples:
  sallyport env add data -p numpy -p pandas --default
  sallyport env build data`
}

// envLine is an environment in a list.
type envLine struct {
	Name     string             `json:"name,omitempty"`
	Default  bool               `json:"default"`
	State    string             `json:"state"` // built, unbuilt, changed, script or broken
	Problem  string             `json:"problem,omitempty"`
	Python   string             `json:"python,omitempty"`
	Packages int                `json:"packages"`
	Bytes    int64              `json:"bytes"`
	Built    *environment.Built `json:"built,omitempty"`
}

// The states of environments.
const (
	envBuilt   = "built"
	envUnbuilt = "unbuilt"
	envChanged = "changed" // after it was locked
	envScript  = "script"  // the environment of a script, which has no name
	envRemoved = "removed" // from the configuration file
	envBroken  = "broken"
)

// environments opens the store of environments.
func (u *ui) environments() (*environment.Store, error) {
	if err := u.configure(); err != nil {
		return nil, err
	}
	return u.Environments()
}

// envLines lists the environments of the settings, and what else was built.
func (u *ui) envLines(s *environment.Store) ([]envLine, error) {
	lines := []envLine{}
	for _, e := range u.Settings.Environments {
		line := envLine{Name: e.Name, Default: e.Name == u.Settings.Environment, Python: cmp.Or(e.Image, e.Python, "host"), Packages: len(e.Packages)}
		d, err := u.Definition(e.Name)
		if err == nil {
			line.Built, err = s.Find(d)
		}
		line.State = stateOfEnv(err)
		if line.State == envBroken || line.State == envChanged {
			line.Problem = err.Error()
		}
		lines = append(lines, line)
	}
	built, err := s.List()
	for i := range built {
		if slices.ContainsFunc(lines, func(l envLine) bool { return l.Name == built[i].Name && l.Name != "" }) {
			continue
		}
		state := envScript
		if built[i].Name != "" {
			state = envRemoved
		}
		lines = append(lines, envLine{Name: cmp.Or(built[i].Name, built[i].ID), State: state, Built: &built[i]})
	}
	for i := range lines {
		if b := lines[i].Built; b != nil {
			lines[i].Python, lines[i].Packages, lines[i].Bytes = b.Python, len(b.Packages), b.Bytes
		}
	}
	return lines, err
}

func stateOfEnv(err error) string {
	switch {
	case err == nil:
		return envBuilt
	case errors.Is(err, environment.ErrUnbuilt):
		return envUnbuilt
	case errors.Is(err, environment.ErrLock):
		return envChanged
	}
	return envBroken
}

type envListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*envListCmd) Help() string {
	return `An environment is a set of packages under a name, for code that runs in a sandbox. It is built on its first use and needs no network after that. Scripts that name their packages have environments without a name.

Examples:
  sallyport env list
  sallyport env list --json | jq -r '.environments[].name'`
}

// Run implements the command.
func (c *envListCmd) Run(u *ui) error {
	s, err := u.environments()
	if err != nil {
		return err
	}
	lines, problems := u.envLines(s)
	if c.JSON {
		return errors.Join(u.printJSON(struct {
			Environments []envLine `json:"environments"`
		}{lines}), problems)
	}
	if len(lines) == 0 {
		fmt.Fprintln(u.stdio.Out, "No environments are configured. Add one: sallyport env add data -p numpy -p pandas")
		return problems
	}
	t := u.table("NAME", "PYTHON", "PACKAGES", "SIZE", "STATE")
	for _, l := range lines {
		state := l.State
		if l.Default {
			state += ", default"
		}
		size := "-"
		if l.Bytes > 0 {
			size = megabytes(l.Bytes)
		}
		t.Row(printable(l.Name), printable(l.Python), fmt.Sprint(l.Packages), size, state)
	}
	err = t.Write(u.stdio.Out)
	for _, l := range lines {
		if l.Problem != "" {
			u.warn([]string{printable(l.Problem)})
		}
	}
	return errors.Join(err, problems)
}

func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }

// builtEnv returns a built environment by its name or ID.
func (u *ui) builtEnv(s *environment.Store, name string) (*environment.Built, error) {
	lines, err := u.envLines(s)
	for _, l := range lines {
		switch {
		case l.Name != name:
		case l.Built != nil:
			return l.Built, nil
		case l.Problem != "":
			return nil, errors.New(l.Problem)
		default:
			return nil, fmt.Errorf("environment %s has not been built: sallyport env build %s", name, name)
		}
	}
	return nil, cmp.Or(u.Settings.CheckEnvironment(name), err, fmt.Errorf("%s has no packages", name))
}

type envShowCmd struct {
	Name string `arg:"" help:"The environment." complete:"environments"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*envShowCmd) Help() string {
	return `Prints each package with its version, and the modules that code can import.

Example:
  sallyport env show data`
}

// Run implements the command.
func (c *envShowCmd) Run(u *ui) error {
	s, err := u.environments()
	if err != nil {
		return err
	}
	b, err := u.builtEnv(s, c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return u.printJSON(b)
	}
	kind := "image"
	if b.Archive != "" {
		kind = "archive"
	}
	fmt.Fprintf(u.stdio.Out, "%s\n  python   %s\n  size     %s\n  %-7s  %s\n  modules  %s\n", printable(cmp.Or(b.Name, b.ID)), printable(b.Python), megabytes(b.Bytes), kind, cmp.Or(b.Archive, b.Image), printable(strings.Join(b.Modules, " ")))
	for _, p := range b.Packages {
		fmt.Fprintf(u.stdio.Out, "  package  %s %s\n", printable(p.Name), printable(p.Version))
	}
	return nil
}

type envLockCmd struct {
	Name   string `arg:"" help:"The environment." complete:"environments"`
	Output string `help:"Also write the lock to this file, which other tools read, too (pylock.toml)." short:"o" placeholder:"FILE"`
	JSON   bool   `help:"Print the result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*envLockCmd) Help() string {
	return `Asks the index for the newest versions that fit. The first build locks by itself; this is needed after the environment was changed in the configuration file, and to get newer versions. The next use builds the environment anew; sessions that exist keep their packages.

Examples:
  sallyport env lock data
  sallyport env lock data --output pylock.toml`
}

// Run implements the command.
func (c *envLockCmd) Run(u *ui) error {
	s, err := u.environments()
	if err != nil {
		return err
	}
	d, err := u.Definition(c.Name)
	if err != nil {
		return err
	}
	u.quiet = u.quiet || c.JSON
	m := u.meter("environment " + c.Name)
	defer m.end()
	if err := s.Lock(u.ctx, d, m.tell); err != nil {
		return interrupted(u, err)
	}
	m.end()
	raw, err := s.LockOf(d)
	if err == nil && c.Output != "" {
		err = writeWhole(c.Output, func(w io.Writer) error {
			_, err := w.Write(raw)
			return err
		})
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return u.printJSON(struct {
			Name   string `json:"name"`
			Output string `json:"output,omitempty"`
		}{c.Name, c.Output})
	}
	fmt.Fprintf(u.stdio.Out, "%s is locked. Build it now: sallyport env build %[1]s\n", c.Name)
	return nil
}

type envBuildCmd struct {
	Names []string `arg:"" optional:"" name:"name" help:"Environments; none: the default one." complete:"environments"`
	All   bool     `help:"Build all environments of the configuration file."`
	JSON  bool     `help:"Print the result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*envBuildCmd) Help() string {
	return `Downloads wheels with this machine's uv or pip, and unpacks them. No code of a package runs outside a sandbox. What is built already costs nothing. At the end a sandbox is prepared, so that the first session starts at once.

Examples:
  sallyport env build data
  sallyport env build --all`
}

// Run implements the command.
func (c *envBuildCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	names := c.Names
	switch {
	case c.All:
		for _, e := range u.Settings.Environments {
			names = append(names, e.Name)
		}
	case len(names) == 0 && u.Settings.Environment != "":
		names = []string{u.Settings.Environment}
	}
	if len(names) == 0 {
		return errors.New("name an environment, or use --all")
	}
	u.quiet = u.quiet || c.JSON
	built, errs := []*environment.Built{}, []error(nil)
	for _, name := range names {
		b, err := u.buildEnv(name)
		if u.ctx.Err() != nil {
			return u.interrupted()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		built = append(built, b)
	}
	if c.JSON {
		errs = append(errs, u.printJSON(struct {
			Built []*environment.Built `json:"built"`
		}{built}))
	}
	return errors.Join(errs...)
}

// buildEnv builds an environment of the settings, and prepares its sessions.
func (u *ui) buildEnv(name string) (*environment.Built, error) {
	s, err := u.Environments()
	if err != nil {
		return nil, err
	}
	d, err := u.Definition(name)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	m := u.meter("environment " + name)
	defer m.end()
	b, err := s.Ensure(u.ctx, d, m.tell)
	if err != nil {
		return nil, err
	}
	m.tell("preparing a sandbox", 0, 0)
	core, err := u.NewCore(app.Options{})
	if err != nil {
		return nil, err
	}
	defer core.Close()
	if err := core.PrepareEnvironment(u.ctx, name); err != nil {
		u.warn([]string{err.Error()}) // sessions start without it, more slowly
	}
	m.end()
	if !u.quiet {
		fmt.Fprintf(u.stdio.Out, "%s is ready: Python %s, %s, %s, %.0f s.\n", name, printable(b.Python), count(len(b.Packages), "package"), megabytes(b.Bytes), time.Since(began).Seconds())
	}
	return b, nil
}

// envAge is how old an environment must be for --unused.
const envAge = 30 * 24 * time.Hour

type envRemoveCmd struct {
	Names  []string `arg:"" optional:"" name:"name" help:"Environments, or IDs of those of scripts." complete:"environments"`
	All    bool     `help:"Also remove the locks, so that the next build chooses versions anew."`
	Unused bool     `help:"Remove environments of scripts, and those that are not in the configuration file any more, if they were built more than 30 days ago."`
	JSON   bool     `help:"Print the result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*envRemoveCmd) Help() string {
	return `Frees the disk space. The configuration file stays, so that the next use builds the environment again from its lock: 'sallyport config unset' removes it there. Files that a suspended session needs stay until 'sallyport image prune'.

Examples:
  sallyport env rm data
  sallyport env rm --unused`
}

// Run implements the command.
func (c *envRemoveCmd) Run(u *ui) error {
	s, err := u.environments()
	if err != nil {
		return err
	}
	if len(c.Names) == 0 && !c.Unused {
		return errors.New("name an environment, or use --unused")
	}
	lines, err := u.envLines(s)
	errs := []error{err}
	type removed struct {
		Name  string `json:"name"`
		Bytes int64  `json:"bytes"`
	}
	out := []removed{}
	remove := func(name string, b *environment.Built) {
		freed, err := u.RemoveEnvironment(s, b, c.All)
		if err != nil {
			errs = append(errs, err)
			return
		}
		out = append(out, removed{name, freed})
		if !c.JSON {
			what := fmt.Sprintf("%.1f MB freed", float64(freed)/1e6)
			if freed == 0 && b.Image+b.Archive != "" {
				what = "and its files when no session or other environment needs them ('sallyport image prune')"
			}
			fmt.Fprintf(u.stdio.Err, "%s is removed, %s.\n", printable(name), what)
		}
	}
	for _, name := range c.Names {
		i := slices.IndexFunc(lines, func(l envLine) bool { return l.Name == name })
		switch {
		case i < 0:
			errs = append(errs, cmp.Or(u.Settings.CheckEnvironment(name), fmt.Errorf("%s has no packages", name)))
		case lines[i].Built != nil:
			remove(name, lines[i].Built)
		default:
			remove(name, &environment.Built{Name: name})
		}
	}
	for _, l := range lines {
		if c.Unused && (l.State == envScript || l.State == envRemoved) && time.Since(l.Built.Time) >= envAge {
			remove(l.Name, l.Built)
		}
	}
	if c.JSON {
		errs = append(errs, u.printJSON(struct {
			Removed []removed `json:"removed"`
		}{out}))
	}
	return errors.Join(errs...)
}

type envExportCmd struct {
	Name   string `arg:"" help:"The environment." complete:"environments"`
	Output string `help:"The file." short:"o" placeholder:"FILE" required:""`
	JSON   bool   `help:"Print the result as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*envExportCmd) Help() string {
	return `The archive is for 'podman load', 'docker load' and 'sallyport image load', on this machine or others.

Example:
  sallyport env export data -o data.tar`
}

// Run implements the command.
func (c *envExportCmd) Run(u *ui) error {
	s, err := u.environments()
	if err != nil {
		return err
	}
	b, err := u.builtEnv(s, c.Name)
	if err != nil {
		return err
	}
	u.quiet = u.quiet || c.JSON
	m := u.meter("environment " + c.Name)
	defer m.end()
	m.tell("writing "+c.Output, 0, 0)
	if err := writeWhole(c.Output, func(w io.Writer) error { return s.Export(u.ctx, b, w) }); err != nil {
		return interrupted(u, err)
	}
	m.end()
	if c.JSON {
		return u.printJSON(struct {
			Name   string `json:"name"`
			Output string `json:"output"`
		}{c.Name, c.Output})
	}
	fmt.Fprintf(u.stdio.Out, "%s is in %s.\n", printable(c.Name), printable(c.Output))
	return nil
}

// writeWhole writes a file, whole or not at all.
func writeWhole(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sallyport-*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/invisible"
)

// packageFlags choose what the program can import.
type packageFlags struct {
	Env  string   `help:"Environment that the program runs in: a name from the section environments of the settings, or host for none." placeholder:"NAME" complete:"environments"`
	With []string `help:"Package that the program can import, optionally with a version: pandas, 'httpx>=0.27'. Can be repeated." placeholder:"PACKAGE" sep:"none"`
}

// environment returns the program's environment, as broker.Request.Env wants it. It
// builds that first if it is not there.
func (c *runCmd) environment(u *ui, code string, script bool) (string, error) {
	var header *environment.Definition
	if script {
		var err error
		if header, err = environment.Inline(code); err != nil {
			return "", fmt.Errorf("%s: %w", invisible.Line(c.filename()), err)
		}
	}
	if c.Batch != "" {
		return "", c.batchPackages(u, header)
	}
	d, err := c.definition(u, header)
	if d == nil || err != nil {
		return c.Env, err
	}
	b, err := u.built(d)
	switch {
	case errors.Is(err, environment.ErrLock), errors.Is(err, environment.ErrUnfit): // which name the environment
		return "", err
	case err != nil && d.Name != "":
		return "", fmt.Errorf("environment %s: %w", d.Name, err)
	case err != nil:
		return "", fmt.Errorf("the program's packages: %w%s", err, distribution(err, d.Packages))
	case d.Name != "":
		return d.Name, c.accepts(header, b)
	}
	return b.ID, nil
}

// batchPackages refuses what a batch service cannot do: its machines have packages
// of their own.
func (c *runCmd) batchPackages(u *ui, header *environment.Definition) error {
	switch wrong := "%s does not go with --batch %s: the program gets the service's own packages there"; {
	case c.Env != "":
		return fmt.Errorf(wrong, "--env", c.Batch)
	case len(c.With) > 0:
		return fmt.Errorf(wrong, "--with", c.Batch)
	}
	if header != nil && len(header.Packages) > 0 {
		fmt.Fprintf(u.stdio.Err, "sallyport: the packages of the script's header are not installed on %s: the program gets the service's own\n", c.Batch)
	}
	return nil
}

// definition returns what has to be built for the program; nil: it gets what Env
// says, and nothing needs to be built for that first.
func (c *runCmd) definition(u *ui, header *environment.Definition) (*environment.Definition, error) {
	var packages []build.Requirement
	requires := ""
	if header != nil {
		packages, requires = header.Packages, header.RequiresPython
	}
	for _, text := range c.With {
		r, err := build.ParseRequirement(text)
		if err != nil {
			return nil, fmt.Errorf("--with: %w", err)
		}
		packages = append(packages, r)
	}
	// A header says all that its script needs, so the default is not for it.
	name := c.Env
	if name == "" && header == nil && len(packages) > 0 {
		name = u.Settings.Environment
	}
	d := &environment.Definition{Image: u.Settings.Image}
	named := name != "" && name != broker.HostEnvironment
	if !named && len(packages) == 0 && requires == "" {
		return nil, nil
	}
	if u.Settings.Hub.Enabled && !c.Standalone {
		u.FollowHub(u.ctx)
	}
	pure := u.Pure()
	switch {
	case named:
		named, err := u.Definition(name)
		if err != nil || len(packages) == 0 {
			return named, err
		}
		if d, err = u.pinned(named); err != nil {
			return nil, err
		}
	case len(packages) == 0 && pure:
		return nil, environment.FitsPure(requires)
	case len(packages) == 0 && d.Image != "":
		return nil, nil
	}
	if !pure && d.Image == "" && slices.Contains([]string{"", broker.HostEnvironment, u.Settings.Python}, d.Python) {
		if d.Python = u.HostPython(u.ctx, requires); d.Python != "" && len(packages) == 0 {
			return nil, nil // it runs as it is
		}
	}
	d.Name, d.Packages, d.RequiresPython = "", slices.Concat(d.Packages, packages), requires
	return d, nil
}

// pinned returns a definition of what an environment has, with those versions, so
// that packages can be added to it.
func (u *ui) pinned(named *environment.Definition) (*environment.Definition, error) {
	b, err := u.built(named)
	if errors.Is(err, environment.ErrLock) || errors.Is(err, environment.ErrUnfit) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("environment %s: %w", named.Name, err)
	}
	d := *named
	d.Packages, d.File = nil, ""
	for _, p := range b.Packages {
		r, err := build.ParseRequirement(p.Name + "==" + p.Version)
		if err != nil {
			return nil, fmt.Errorf("environment %s: %w", named.Name, err)
		}
		d.Packages = append(d.Packages, r)
	}
	return &d, nil
}

// built returns an environment, which it builds if it is not there. One without a
// name has no lock to keep: the packages of a program are resolved again where the
// Python that they were for has changed.
func (u *ui) built(d *environment.Definition) (*environment.Built, error) {
	all, err := u.Environments()
	if err != nil {
		return nil, err
	}
	b, err := all.Find(d)
	stale := d.Name == "" && errors.Is(err, environment.ErrLock)
	if err == nil || !stale && !errors.Is(err, environment.ErrUnbuilt) {
		return b, err
	}
	what := "environment " + d.Name
	if d.Name == "" {
		what = "packages"
	}
	meter := u.silentMeter(what)
	defer meter.end()
	if stale {
		if err := all.Lock(u.ctx, d, meter.tell); err != nil {
			return nil, err
		}
	}
	b, err = all.Ensure(u.ctx, d, meter.tell)
	return b, u.Elsewhere(err)
}

// accepts reports a script whose header does not accept the Python of the
// environment that the user chose for it.
func (c *runCmd) accepts(header *environment.Definition, b *environment.Built) error {
	var major, minor int
	if header == nil || header.RequiresPython == "" {
		return nil
	}
	if n, _ := fmt.Sscanf(b.Python, "%d.%d", &major, &minor); n != 2 {
		return nil
	}
	ok, err := environment.Accepts(header.RequiresPython, major, minor)
	if err == nil && !ok {
		err = fmt.Errorf("%s needs Python %s, and environment %s has %s: choose another with --env, or leave --env out", invisible.Line(c.filename()), header.RequiresPython, c.Env, b.Python)
	}
	return err
}

// distributions are packages that people know by the name of their module.
var distributions = map[string]string{
	"bs4": "beautifulsoup4", "crypto": "pycryptodome", "cv2": "opencv-python-headless", "dateutil": "python-dateutil", "dotenv": "python-dotenv",
	"pil": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml",
}

// distribution returns what else to try if an error is about a package that has
// another name than its module.
func distribution(err error, packages []build.Requirement) string {
	for _, r := range packages {
		name := string(r)
		if i := strings.IndexAny(name, " [(=~!<>;"); i >= 0 {
			name = name[:i]
		}
		if other := distributions[strings.ToLower(name)]; other != "" && strings.Contains(err.Error(), name) {
			return fmt.Sprintf("\nThe package with the module %s is %s.", name, other)
		}
	}
	return ""
}

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/configfile"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/terminal"
)

// dataEnv is the environment that init offers. dataCost is what it takes, measured on
// two busy cores of x86-64 with Python 3.11: 101 MB, 524 MB with Python, and 108 s.
var dataEnv = envAddCmd{
	Name:    "data",
	Package: []string{"numpy", "pandas", "matplotlib", "scipy", "scikit-learn", "seaborn", "openpyxl", "lxml"},
	Preload: []string{"pandas"},
}

const dataCost = "a download of about 100 MB, about 500 MB on disk and up to two minutes"

// data offers an environment for data to a user who has none, and builds it. It
// becomes the default once it is built: code must not wait for an index that does
// not answer.
func (c *initCmd) data(u *ui) error {
	set := u.Settings
	if !c.Data {
		if c.Yes || len(set.Environments) > 0 || set.Environment != "" || set.Image != "" || !terminal.Is(u.stdio.In) {
			return nil
		}
		if _, err := u.Pip(u.ctx); err != nil {
			return nil // nothing can be downloaded
		}
		fmt.Fprintf(u.stdio.Out, "Code can have packages for data: %s. They take %s, and work offline afterwards.\n", strings.Join(dataEnv.Package, ", "), dataCost)
		if !u.agreed("Build the environment data now?") {
			return u.ctx.Err()
		}
	}
	if !slices.ContainsFunc(set.Environments, func(e settings.Environment) bool { return e.Name == dataEnv.Name }) {
		if err := u.addEnvironment(&dataEnv); err != nil {
			return err
		}
		if err := u.configure(); err != nil {
			return err
		}
	}
	if _, err := u.buildEnv(dataEnv.Name); err != nil {
		if u.ctx.Err() != nil {
			return u.interrupted()
		}
		return fmt.Errorf("%w\nThe rest is done. Try again: sallyport env build data && sallyport config set environment data", err)
	}
	if set.Environment != "" {
		return nil
	}
	err := u.changeConfig(func(content []byte) ([]byte, error) {
		return configfile.Set(content, "environment", dataEnv.Name)
	})
	if err == nil {
		fmt.Fprintf(u.stdio.Out, "New sessions have the environment data. Without it: sallyport config set environment %s\n", broker.HostEnvironment)
	}
	return err
}

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/configfile"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/settings"
)

type envAddCmd struct {
	Name    string   `arg:"" help:"Its name: lower-case letters, digits, - and _."`
	Package []string `help:"Package, optionally with a version: numpy, pandas>=2. Can be repeated." short:"p" placeholder:"NAME" sep:"none"`
	File    string   `help:"Requirements file, pyproject.toml or pylock.toml with further packages." short:"r" placeholder:"FILE"`
	Python  string   `help:"The Python that the packages are for: host, a version such as 3.12, or a path." placeholder:"PYTHON"`
	Image   string   `help:"OCI image to add the packages to, in place of a Python of this machine." placeholder:"IMAGE" complete:"images"`
	Preload []string `help:"Module that new sessions have imported already. Can be repeated." placeholder:"MODULE" sep:"none"`
	Default bool     `help:"Make it the environment of sessions that choose none."`
	JSON    bool     `help:"Print the result as JSON." name:"json"`

	more bool // the environment exists, and gets more packages
}

// Help implements kong's HelpProvider.
func (*envAddCmd) Help() string {
	return `Writes the environment to the configuration file, and downloads nothing: its first use builds it, or 'sallyport env build'. One that exists gets further packages.

Examples:
  sallyport env add data -p numpy -p 'pandas>=2' --preload pandas --default
  sallyport env add data -p lxml
  sallyport env add tools -r requirements.txt --image python:3.13-slim`
}

// Run implements the command.
func (c *envAddCmd) Run(u *ui) error {
	if err := settings.CheckEnvironmentName(c.Name); err != nil {
		return err
	}
	if err := u.configure(); err != nil {
		return err
	}
	if len(c.Package) == 0 && c.File == "" && c.Image == "" && c.Python == "" {
		return errors.New("name packages with -p PACKAGE, or a file of them with -r FILE")
	}
	if err := u.addEnvironment(c); err != nil {
		return err
	}
	if c.JSON {
		return u.printJSON(struct {
			Name string `json:"name"`
			File string `json:"file"`
		}{c.Name, u.Settings.File().Path})
	}
	next := "Build it now: sallyport env build "
	if c.more {
		next = "Choose the versions of its packages now: sallyport env lock "
	}
	fmt.Fprintf(u.stdio.Out, "%s is in %s. %s%[1]s\n", c.Name, printable(u.Settings.File().Path), next)
	return nil
}

// addEnvironment writes an environment to the configuration file.
func (u *ui) addEnvironment(c *envAddCmd) error {
	for _, text := range c.Package {
		if _, err := build.ParseRequirement(text); err != nil {
			return fmt.Errorf("--package: %w", err)
		}
	}
	for _, e := range u.Settings.Environments {
		if e.Name == c.Name && len(c.Package) > 0 && c.File+c.Python+c.Image == "" && len(c.Preload) == 0 {
			c.more, c.Package = true, unique(e.Packages, c.Package)
		} else if e.Name == c.Name {
			return fmt.Errorf("there is an environment %s already: change it with 'sallyport config set environments.%[1]s.packages', or 'sallyport config edit'", c.Name)
		}
	}
	src := u.Env.Sources(u.Dir, u.grammar.ConfigFile)
	return u.changeConfig(func(content []byte) ([]byte, error) {
		for _, part := range []struct {
			key   string
			parts []string
		}{
			{"python", one(c.Python)}, {"image", one(c.Image)}, {"packages", c.Package}, {"file", one(c.File)}, {"preload", c.Preload},
		} {
			if len(part.parts) == 0 {
				continue
			}
			key := strings.Join([]string{settings.EnvironmentsKey, c.Name, part.key}, ".")
			value, err := settings.Value(key, part.parts, src.Home, src.Dir, false)
			if err != nil {
				return nil, err
			}
			if content, err = configfile.Set(content, key, value); err != nil {
				return nil, err
			}
		}
		if c.Default {
			return configfile.Set(content, "environment", c.Name)
		}
		return content, nil
	})
}

// unique returns two lists as one, each text once.
func unique(a, b []string) []string {
	var out []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// one returns a list of one value, or none if that is empty.
func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

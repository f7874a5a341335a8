package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"sallyport/internal/hidden"
	"sallyport/internal/settings"
	"sallyport/internal/state"
	"sallyport/internal/usertools"
)

// savedToolsOf are the saved tools that the settings describe.
func savedToolsOf(set *settings.Settings) *usertools.Store {
	return usertools.Open(state.At(set.StateDir).Sub("user_tools"), usertools.Limits{
		Tools: set.Saved.MaxTools, Versions: set.Saved.Versions,
	})
}

type savedToolsCmd struct {
	List   savedToolsListCmd   `cmd:"" default:"withargs" help:"List the saved tools."`
	Show   savedToolsShowCmd   `cmd:"" help:"Print the source of a saved tool."`
	Remove savedToolsRemoveCmd `cmd:"" name:"rm" help:"Remove saved tools, with all their versions."`
	Export savedToolsExportCmd `cmd:"" help:"Print saved tools as one JSON document."`
	Import savedToolsImportCmd `cmd:"" help:"Add the saved tools of such a document."`
}

func (a *app) savedTools() (*usertools.Store, error) {
	if err := a.configure(); err != nil {
		return nil, err
	}
	return savedToolsOf(a.settings), nil
}

type savedToolsListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*savedToolsListCmd) Help() string {
	return `Code saves a function with save_tool(function); every later session has it: from user_tools import NAME. They run in sandboxes only.

Example:
  sallyport saved-tools list
  sallyport saved-tools show top_issues`
}

// savedToolLine is a saved tool as list prints it.
type savedToolLine struct {
	Name      string   `json:"name"`
	Version   int      `json:"version"`
	Versions  []int    `json:"versions"`
	SavedAt   string   `json:"saved_at"`
	Signature string   `json:"signature"`
	Async     bool     `json:"async,omitempty"`
	Servers   []string `json:"servers,omitempty"`
	Doc       string   `json:"doc,omitempty"`
}

// Run implements the command.
func (c *savedToolsListCmd) Run(a *app) error {
	kept, err := a.savedTools()
	if err != nil {
		return err
	}
	tools, broken, err := kept.List()
	if err != nil {
		return err
	}
	lines := []savedToolLine{}
	for i := range tools {
		lines = append(lines, lineOf(&tools[i]))
	}
	if c.JSON {
		return a.printJSON(struct {
			Tools  []savedToolLine `json:"tools"`
			Broken []string        `json:"broken,omitempty"`
		}{lines, broken})
	}
	if len(lines) == 0 {
		fmt.Fprintln(a.stdio.Out, "No tools are saved. Code saves a function with save_tool(function).")
	} else {
		w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "TOOL\tVERSION\tSAVED\tDOES")
		for _, l := range lines {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(firstLine(l.Name+l.Signature, 60)), versions(l.Versions), printable(l.SavedAt), printable(firstLine(l.Doc, 60)))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, name := range broken {
		fmt.Fprintf(a.stdio.Err, "sallyport: warning: the file of %s cannot be read\n", name)
	}
	return nil
}

func lineOf(t *usertools.Tool) savedToolLine {
	v := t.Current()
	l := savedToolLine{
		Name: t.Name, Version: v.Version, SavedAt: v.SavedAt, Signature: v.Signature,
		Async: v.Async, Servers: v.Servers, Doc: v.Doc,
	}
	for i := range t.Versions {
		l.Versions = append(l.Versions, t.Versions[i].Version)
	}
	return l
}

// versions names the current version and the older ones that are kept.
func versions(all []int) string {
	last := len(all) - 1
	text := fmt.Sprint(all[last])
	switch {
	case last == 1:
		text += fmt.Sprintf(" (also %d)", all[0])
	case last > 1:
		text += fmt.Sprintf(" (also %d to %d)", all[0], all[last-1])
	}
	return text
}

type savedToolsShowCmd struct {
	Name    string `arg:"" help:"The tool's name."`
	Version int    `help:"An older version." placeholder:"N"`
	JSON    bool   `help:"Print everything that is kept of this version as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*savedToolsShowCmd) Help() string {
	return `Example:
  sallyport saved-tools show top_issues
  sallyport saved-tools show top_issues --version 1`
}

// Run implements the command.
func (c *savedToolsShowCmd) Run(a *app) error {
	kept, err := a.savedTools()
	if err != nil {
		return err
	}
	t, err := kept.Get(c.Name)
	if err != nil {
		return aboutTool(c.Name, err)
	}
	v := t.Current()
	if c.Version != 0 {
		i := slices.IndexFunc(t.Versions, func(v usertools.Version) bool { return v.Version == c.Version })
		if i < 0 {
			return fmt.Errorf("%s has no version %d: there is %s", c.Name, c.Version, versions(lineOf(&t).Versions))
		}
		v = &t.Versions[i]
	}
	if c.JSON {
		return a.printJSON(struct {
			Name string `json:"name"`
			*usertools.Version
		}{t.Name, v})
	}
	source := v.Source
	if movesCursor(source) || len(hidden.In(source)) > 0 {
		raw, err := json.Marshal(source)
		if err != nil {
			return err
		}
		source = "# There are characters in the source that are not seen, so it is shown as JSON.\n" + plainJSON(string(raw))
	}
	_, err = fmt.Fprintln(a.stdio.Out, strings.TrimRight(source, "\n"))
	return err
}

func aboutTool(name string, err error) error {
	if errors.Is(err, usertools.ErrMissing) {
		return fmt.Errorf("no tool is saved as %q; 'sallyport saved-tools list' shows what is", name)
	}
	return fmt.Errorf("%q: %w", name, err)
}

type savedToolsRemoveCmd struct {
	Names []string `arg:"" help:"The tools' names."`
}

// Help implements kong's HelpProvider.
func (*savedToolsRemoveCmd) Help() string {
	return `Example:
  sallyport saved-tools rm top_issues`
}

// Run implements the command.
func (c *savedToolsRemoveCmd) Run(a *app) error {
	kept, err := a.savedTools()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range c.Names {
		if err := kept.Remove(name); err != nil {
			errs = append(errs, aboutTool(name, err))
		}
	}
	return errors.Join(errs...)
}

type savedToolsExportCmd struct {
	Names []string `arg:"" optional:"" help:"The tools' names; without any, all."`
}

// Help implements kong's HelpProvider.
func (*savedToolsExportCmd) Help() string {
	return `Example:
  sallyport saved-tools export >tools.json
  sallyport saved-tools export top_issues | ssh other sallyport saved-tools import -`
}

// Run implements the command.
func (c *savedToolsExportCmd) Run(a *app) error {
	kept, err := a.savedTools()
	if err != nil {
		return err
	}
	archive := usertools.Archive{Format: usertools.Format, Tools: []usertools.Tool{}}
	var broken []string
	if len(c.Names) == 0 {
		var tools []usertools.Tool
		if tools, broken, err = kept.List(); err != nil {
			return err
		}
		archive.Tools = append(archive.Tools, tools...)
	}
	for _, name := range c.Names {
		t, err := kept.Get(name)
		if err != nil {
			return aboutTool(name, err)
		}
		archive.Tools = append(archive.Tools, t)
	}
	if err := a.printJSON(archive); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("these cannot be read and are left out: %q", broken)
	}
	return nil
}

type savedToolsImportCmd struct {
	File string `arg:"" help:"What export has printed: a file, or - for standard input."`
	JSON bool   `help:"Print what was done as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*savedToolsImportCmd) Help() string {
	return `Nothing of it is run: it is checked and kept. To a tool that is there already, the document's current version is added as a new one. Look at what others made before an agent uses it: sallyport saved-tools show NAME.

Example:
  sallyport saved-tools import tools.json`
}

// Run implements the command.
func (c *savedToolsImportCmd) Run(a *app) error {
	kept, err := a.savedTools()
	if err != nil {
		return err
	}
	var in io.Reader = a.stdio.In
	if c.File != "-" {
		f, err := os.Open(filepath.Clean(c.File))
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	archive, err := usertools.ReadArchive(in)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	done, err := kept.Import(archive)
	if c.JSON {
		if done == nil {
			done = []usertools.Imported{}
		}
		if err := a.printJSON(struct {
			Tools []usertools.Imported `json:"tools"`
		}{done}); err != nil {
			return err
		}
	} else {
		for _, d := range done {
			fmt.Fprintf(a.stdio.Out, "%s: %s, version %d\n", d.Name, d.Change, d.Version)
		}
	}
	return err
}

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/savedtools"
	"github.com/sallyport/sallyport/internal/store/keyed"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

type savedToolsCmd struct {
	List   savedToolsListCmd   `cmd:"" default:"withargs" help:"List the saved tools."`
	Show   savedToolsShowCmd   `cmd:"" help:"Print the source of a saved tool."`
	Remove savedToolsRemoveCmd `cmd:"" name:"rm" help:"Remove saved tools, with all their versions."`
	Export savedToolsExportCmd `cmd:"" help:"Print saved tools as one JSON document."`
	Import savedToolsImportCmd `cmd:"" help:"Import saved tools from such a document."`
}

func (u *ui) savedTools() (*savedtools.Store, error) {
	if err := u.configure(); err != nil {
		return nil, err
	}
	return u.SavedTools(), nil
}

type savedToolsListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*savedToolsListCmd) Help() string {
	return `Code saves a function with save_tool(function); later sessions import it with 'from user_tools import NAME'. Saved tools run in sandboxes only.

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
func (c *savedToolsListCmd) Run(u *ui) error {
	kept, err := u.savedTools()
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
		return u.printJSON(struct {
			Tools  []savedToolLine `json:"tools"`
			Broken []string        `json:"broken,omitempty"`
		}{lines, broken})
	}
	if len(lines) == 0 {
		fmt.Fprintln(u.stdio.Out, "No tools are saved. Code saves a function with save_tool(function).")
	} else {
		t := u.table("TOOL", "VERSION", "SAVED", "DOES")
		for _, l := range lines {
			t.Row(printable(l.Name+l.Signature), versions(l.Versions), printable(l.SavedAt), printable(firstLine(l.Doc)))
		}
		if err := t.Write(u.stdio.Out); err != nil {
			return err
		}
	}
	for _, name := range broken {
		u.warn([]string{"the file of " + name + " cannot be read"})
	}
	return nil
}

func lineOf(t *savedtools.Tool) savedToolLine {
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

// savedName returns the saved tool that the user means: by its name or as it is
// printed, user_tools.mean.
func savedName(text string) string {
	return tool.ToolName(strings.TrimPrefix(text, bridge.SavedServer+"."))
}

type savedToolsShowCmd struct {
	Name    string `arg:"" help:"The tool's name." complete:"saved-tools"`
	Version int    `help:"An older version." placeholder:"N"`
	JSON    bool   `help:"Print the whole entry of this version as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*savedToolsShowCmd) Help() string {
	return `Example:
  sallyport saved-tools show top_issues
  sallyport saved-tools show top_issues --version 1`
}

// Run implements the command.
func (c *savedToolsShowCmd) Run(u *ui) error {
	kept, err := u.savedTools()
	if err != nil {
		return err
	}
	c.Name = savedName(c.Name)
	t, err := kept.Get(c.Name)
	if err != nil {
		return aboutTool(c.Name, err)
	}
	v := t.Current()
	if c.Version != 0 {
		i := slices.IndexFunc(t.Versions, func(v savedtools.Version) bool { return v.Version == c.Version })
		if i < 0 {
			return fmt.Errorf("%s has no version %d: it has %s", c.Name, c.Version, versions(lineOf(&t).Versions))
		}
		v = &t.Versions[i]
	}
	if c.JSON {
		return u.printJSON(struct {
			Name string `json:"name"`
			*savedtools.Version
		}{t.Name, v})
	}
	source := v.Source
	if movesCursor(source) || len(invisible.In(source)) > 0 {
		raw, err := json.Marshal(source)
		if err != nil {
			return err
		}
		source = "# The source contains invisible characters, so it is shown as JSON.\n" + plainJSON(string(raw))
	}
	_, err = fmt.Fprintln(u.stdio.Out, strings.TrimRight(source, "\n"))
	return err
}

func aboutTool(name string, err error) error {
	if errors.Is(err, keyed.ErrMissing) {
		return fmt.Errorf("no saved tool %q; 'sallyport saved-tools list' lists them", name)
	}
	return fmt.Errorf("%q: %w", name, err)
}

type savedToolsRemoveCmd struct {
	Names []string `arg:"" help:"The tools' names." complete:"saved-tools"`
}

// Help implements kong's HelpProvider.
func (*savedToolsRemoveCmd) Help() string {
	return `Example:
  sallyport saved-tools rm top_issues`
}

// Run implements the command.
func (c *savedToolsRemoveCmd) Run(u *ui) error {
	kept, err := u.savedTools()
	if err != nil {
		return err
	}
	var errs []error
	for _, text := range c.Names {
		name := savedName(text)
		if err := kept.Remove(name); err != nil {
			errs = append(errs, aboutTool(name, err))
		}
	}
	return errors.Join(errs...)
}

type savedToolsExportCmd struct {
	Names []string `arg:"" optional:"" help:"The tools' names (default: all)." complete:"saved-tools"`
}

// Help implements kong's HelpProvider.
func (*savedToolsExportCmd) Help() string {
	return `Example:
  sallyport saved-tools export >tools.json
  sallyport saved-tools export top_issues | ssh other sallyport saved-tools import -`
}

// Run implements the command.
func (c *savedToolsExportCmd) Run(u *ui) error {
	kept, err := u.savedTools()
	if err != nil {
		return err
	}
	archive := savedtools.Archive{Format: savedtools.Format, Tools: []savedtools.Tool{}}
	var broken []string
	if len(c.Names) == 0 {
		var tools []savedtools.Tool
		if tools, broken, err = kept.List(); err != nil {
			return err
		}
		archive.Tools = append(archive.Tools, tools...)
	}
	for _, text := range c.Names {
		name := savedName(text)
		t, err := kept.Get(name)
		if err != nil {
			return aboutTool(name, err)
		}
		archive.Tools = append(archive.Tools, t)
	}
	if err := u.printJSON(archive); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("these cannot be read and were left out: %q", broken)
	}
	return nil
}

type savedToolsImportCmd struct {
	File string `arg:"" help:"The output of export: a file, or - for standard input."`
	JSON bool   `help:"Print the changes as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*savedToolsImportCmd) Help() string {
	return `The tools are checked and stored, not run. If a tool exists already, the document's current version is added as a new version. Review tools from other people before an agent uses them: sallyport saved-tools show NAME.

Example:
  sallyport saved-tools import tools.json`
}

// Run implements the command.
func (c *savedToolsImportCmd) Run(u *ui) error {
	kept, err := u.savedTools()
	if err != nil {
		return err
	}
	in := u.input()
	if c.File != "-" {
		f, err := os.Open(filepath.Clean(c.File))
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	archive, err := savedtools.ReadArchive(in)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	done, err := kept.Import(archive)
	if c.JSON {
		if done == nil {
			done = []savedtools.Imported{}
		}
		if err := u.printJSON(struct {
			Tools []savedtools.Imported `json:"tools"`
		}{done}); err != nil {
			return err
		}
	} else {
		for _, d := range done {
			fmt.Fprintf(u.stdio.Out, "%s: %s, version %d\n", d.Name, d.Change, d.Version)
		}
	}
	return err
}

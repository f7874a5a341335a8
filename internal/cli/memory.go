package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"sallyport/internal/memory"
	"sallyport/internal/settings"
	"sallyport/internal/state"
)

// memoryOf is the memory that the settings describe.
func memoryOf(set *settings.Settings) *memory.Store {
	return memory.Open(state.At(set.StateDir).Sub("memory"), memory.Limits{
		Value: set.Memory.MaxValue, Keys: set.Memory.MaxKeys, Total: set.Memory.MaxTotal,
	})
}

type memoryCmd struct {
	List   memoryListCmd   `cmd:"" default:"withargs" help:"List what code has kept for later sessions."`
	Get    memoryGetCmd    `cmd:"" help:"Print a value."`
	Set    memorySetCmd    `cmd:"" help:"Keep a value."`
	Remove memoryRemoveCmd `cmd:"" name:"rm" help:"Remove values."`
	Export memoryExportCmd `cmd:"" help:"Print everything as one JSON document."`
}

// memory returns the memory of the settings in force.
func (a *app) memory() (*memory.Store, error) {
	if err := a.configure(); err != nil {
		return nil, err
	}
	return memoryOf(a.settings), nil
}

type memoryListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*memoryListCmd) Help() string {
	return `Each value is a JSON file of its own in the folder memory of the state directory ('sallyport config' names it as stateDir), and can be read and edited there.

Example:
  sallyport memory list
  sallyport memory get project_notes`
}

// Run implements the command.
func (c *memoryListCmd) Run(a *app) error {
	kept, err := a.memory()
	if err != nil {
		return err
	}
	items, err := kept.List()
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(struct {
			Memories []memory.Item `json:"memories"`
		}{items})
	}
	if len(items) == 0 {
		fmt.Fprintln(a.stdio.Out, "Nothing is kept. Code keeps values with save_memory(key, value).")
		return nil
	}
	w := tabwriter.NewWriter(a.stdio.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tUPDATED\tMETADATA")
	for _, i := range items {
		updated, metadata := printable(i.UpdatedAt), string(i.Metadata)
		if metadata == "{}" {
			metadata = ""
		}
		if i.Error != "" {
			updated, metadata = "-", "("+i.Error+")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", printable(i.Key), updated, firstLine(printable(oneLine(metadata)), 60))
	}
	return w.Flush()
}

// printable is a text of code's as a terminal can show it: quoted, if there is
// in it what moves the cursor.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// movesCursor says whether a text of several lines does more to a terminal than
// lines do.
func movesCursor(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	})
}

// oneLine is a JSON text on one line.
func oneLine(raw string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(raw)) != nil {
		return raw
	}
	return b.String()
}

type memoryGetCmd struct {
	Key  string `arg:"" help:"The key."`
	JSON bool   `help:"Print everything that is kept with it as JSON: key, value, metadata, times." name:"json"`
}

// Help implements kong's HelpProvider.
func (*memoryGetCmd) Help() string {
	return `A text is printed as it is, unless there are control characters in it; any other value as JSON.

Example:
  sallyport memory get project_notes
  sallyport memory get --json counter | jq .value`
}

// Run implements the command.
func (c *memoryGetCmd) Run(a *app) error {
	kept, err := a.memory()
	if err != nil {
		return err
	}
	e, err := kept.Get(c.Key)
	if err != nil {
		return aboutKey(c.Key, err)
	}
	if c.JSON {
		return a.printJSON(e)
	}
	var text string
	if e.Value[0] == '"' && json.Unmarshal(e.Value, &text) == nil && !movesCursor(text) {
		_, err = fmt.Fprintln(a.stdio.Out, text)
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, e.Value, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdio.Out, plainJSON(b.String()))
	return err
}

// aboutKey says which key an error is about.
func aboutKey(key string, err error) error {
	if errors.Is(err, memory.ErrMissing) {
		return fmt.Errorf("nothing is kept under %q; 'sallyport memory list' shows what is", key)
	}
	return fmt.Errorf("%q: %w", key, err)
}

type memorySetCmd struct {
	Key      string  `arg:"" help:"The key."`
	Value    string  `arg:"" help:"The value as JSON, or - to read it from standard input."`
	Text     bool    `help:"The value is a text, not JSON." short:"t"`
	Metadata *string `help:"An object as JSON; without it the metadata stay." placeholder:"JSON"`
}

// Help implements kong's HelpProvider.
func (*memorySetCmd) Help() string {
	return `Example:
  sallyport memory set limits '{"budget": 100}'
  sallyport memory set --text project_notes 'Use the staging server.'
  sallyport memory set report - <report.json`
}

// Run implements the command.
func (c *memorySetCmd) Run(a *app) error {
	kept, err := a.memory()
	if err != nil {
		return err
	}
	value := []byte(c.Value)
	if c.Value == "-" {
		if value, err = io.ReadAll(io.LimitReader(a.stdio.In, memory.MaxFile)); err != nil {
			return err
		}
	}
	if c.Text {
		if value, err = json.Marshal(string(value)); err != nil {
			return err
		}
	}
	if !json.Valid(value) {
		return fmt.Errorf("the value is not JSON; write --text where it is a text")
	}
	if c.Metadata != nil {
		_, err = kept.Put(c.Key, value, json.RawMessage(*c.Metadata))
	} else {
		err = replace(kept, c.Key, value)
	}
	if err != nil {
		return aboutKey(c.Key, err)
	}
	return nil
}

// replace keeps a value and leaves its metadata.
func replace(kept *memory.Store, key string, value json.RawMessage) error {
	for {
		e, err := kept.Get(key)
		if errors.Is(err, memory.ErrBroken) {
			_, err = kept.Put(key, value, nil)
			return err
		}
		if err != nil && !errors.Is(err, memory.ErrMissing) {
			return err
		}
		if _, err = kept.Swap(key, value, e.Version); !errors.Is(err, memory.ErrConflict) {
			return err
		}
	}
}

type memoryRemoveCmd struct {
	Keys []string `arg:"" help:"The keys."`
}

// Help implements kong's HelpProvider.
func (*memoryRemoveCmd) Help() string {
	return `Example:
  sallyport memory rm project_notes counter`
}

// Run implements the command.
func (c *memoryRemoveCmd) Run(a *app) error {
	kept, err := a.memory()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range c.Keys {
		was, err := kept.Delete(key)
		if err == nil && !was {
			err = memory.ErrMissing
		}
		if err != nil {
			errs = append(errs, aboutKey(key, err))
		}
	}
	return errors.Join(errs...)
}

type memoryExportCmd struct{}

// Help implements kong's HelpProvider.
func (*memoryExportCmd) Help() string {
	return `The document has a member memories, a list of {"key", "metadata", "created_at", "updated_at", "value"}.

Example:
  sallyport memory export >memories.json
  sallyport memory export | jq '.memories[] | select(.metadata.tag == "work") | .value'`
}

// Run implements the command.
func (*memoryExportCmd) Run(a *app) error {
	kept, err := a.memory()
	if err != nil {
		return err
	}
	all := []memory.Entry{}
	broken, err := kept.Export(func(e memory.Entry) error { all = append(all, e); return nil })
	if err != nil {
		return err
	}
	if err := a.printJSON(struct {
		Memories []memory.Entry `json:"memories"`
	}{all}); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("these cannot be read and are left out: %q", broken)
	}
	return nil
}

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sallyport/sallyport/internal/memory"
	"github.com/sallyport/sallyport/internal/store/keyed"
)

type memoryCmd struct {
	List   memoryListCmd   `cmd:"" default:"withargs" help:"List the values that code has kept for later sessions."`
	Get    memoryGetCmd    `cmd:"" help:"Print a value."`
	Set    memorySetCmd    `cmd:"" help:"Set a value."`
	Remove memoryRemoveCmd `cmd:"" name:"rm" help:"Remove values."`
	Export memoryExportCmd `cmd:"" help:"Print all values as one JSON document."`
}

// memory returns the store of memories, as the settings say.
func (u *ui) memory() (*memory.Store, error) {
	if err := u.configure(); err != nil {
		return nil, err
	}
	return u.Memory(), nil
}

type memoryListCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*memoryListCmd) Help() string {
	return `Each value is a JSON file in the directory memory of the state directory ('sallyport config' prints it as stateDir), where you can read and edit it.

Example:
  sallyport memory list
  sallyport memory get project_notes`
}

// Run implements the command.
func (c *memoryListCmd) Run(u *ui) error {
	kept, err := u.memory()
	if err != nil {
		return err
	}
	items, err := kept.List()
	if err != nil {
		return err
	}
	if c.JSON {
		return u.printJSON(struct {
			Memories []memory.Item `json:"memories"`
		}{items})
	}
	if len(items) == 0 {
		fmt.Fprintln(u.stdio.Out, "No values are kept. Code keeps values with save_memory(key, value).")
		return nil
	}
	t := u.table("KEY", "UPDATED", "METADATA")
	for _, i := range items {
		updated, metadata := printable(i.UpdatedAt), string(i.Metadata)
		if metadata == "{}" {
			metadata = ""
		}
		if i.Error != "" {
			updated, metadata = "-", "("+i.Error+")"
		}
		t.Row(printable(i.Key), updated, printable(oneLine(metadata)))
	}
	return t.Write(u.stdio.Out)
}

type memoryGetCmd struct {
	Key  string `arg:"" help:"The key." complete:"memories"`
	JSON bool   `help:"Print the whole entry as JSON: key, value, metadata, times." name:"json"`
}

// Help implements kong's HelpProvider.
func (*memoryGetCmd) Help() string {
	return `A string is printed as it is, unless it contains control characters; any other value is printed as JSON.

Example:
  sallyport memory get project_notes
  sallyport memory get --json counter | jq .value`
}

// Run implements the command.
func (c *memoryGetCmd) Run(u *ui) error {
	kept, err := u.memory()
	if err != nil {
		return err
	}
	e, err := kept.Get(c.Key)
	if err != nil {
		return aboutKey(c.Key, err)
	}
	if c.JSON {
		return u.printJSON(e)
	}
	var text string
	if e.Value[0] == '"' && json.Unmarshal(e.Value, &text) == nil && !movesCursor(text) {
		_, err = fmt.Fprintln(u.stdio.Out, text)
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, e.Value, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(u.stdio.Out, plainJSON(b.String()))
	return err
}

// aboutKey adds the key to an error.
func aboutKey(key string, err error) error {
	if errors.Is(err, keyed.ErrMissing) {
		return fmt.Errorf("no value under %q; 'sallyport memory list' lists the keys", key)
	}
	return fmt.Errorf("%q: %w", key, err)
}

type memorySetCmd struct {
	Key      string  `arg:"" help:"The key." complete:"memories"`
	Value    string  `arg:"" help:"The value as JSON, or - to read it from standard input."`
	Text     bool    `help:"The value is plain text, not JSON." short:"t"`
	Metadata *string `help:"Metadata, as a JSON object; without it, the metadata is unchanged." placeholder:"JSON"`
}

// Help implements kong's HelpProvider.
func (*memorySetCmd) Help() string {
	return `Example:
  sallyport memory set limits '{"budget": 100}'
  sallyport memory set --text project_notes 'Use the staging server.'
  sallyport memory set report - <report.json`
}

// Run implements the command.
func (c *memorySetCmd) Run(u *ui) error {
	kept, err := u.memory()
	if err != nil {
		return err
	}
	value := []byte(c.Value)
	if c.Value == "-" {
		if value, err = io.ReadAll(io.LimitReader(u.input(), keyed.MaxFile)); err != nil {
			return err
		}
	}
	if c.Text {
		if value, err = json.Marshal(string(value)); err != nil {
			return err
		}
	}
	if !json.Valid(value) {
		return fmt.Errorf("the value is not JSON; use --text for plain text")
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

// replace replaces a value but keeps its metadata.
func replace(kept *memory.Store, key string, value json.RawMessage) error {
	for {
		e, err := kept.Get(key)
		if errors.Is(err, keyed.ErrBroken) {
			_, err = kept.Put(key, value, nil)
			return err
		}
		if err != nil && !errors.Is(err, keyed.ErrMissing) {
			return err
		}
		if _, err = kept.Swap(key, value, e.Version); !errors.Is(err, keyed.ErrConflict) {
			return err
		}
	}
}

type memoryRemoveCmd struct {
	Keys []string `arg:"" help:"The keys." complete:"memories"`
}

// Help implements kong's HelpProvider.
func (*memoryRemoveCmd) Help() string {
	return `Example:
  sallyport memory rm project_notes counter`
}

// Run implements the command.
func (c *memoryRemoveCmd) Run(u *ui) error {
	kept, err := u.memory()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range c.Keys {
		if err := kept.Delete(key); err != nil {
			errs = append(errs, aboutKey(key, err))
		}
	}
	return errors.Join(errs...)
}

type memoryExportCmd struct{}

// Help implements kong's HelpProvider.
func (*memoryExportCmd) Help() string {
	return `The document has one member, memories: a list of {"key", "metadata", "created_at", "updated_at", "value"}.

Example:
  sallyport memory export >memories.json
  sallyport memory export | jq '.memories[] | select(.metadata.tag == "work") | .value'`
}

// Run implements the command.
func (*memoryExportCmd) Run(u *ui) error {
	kept, err := u.memory()
	if err != nil {
		return err
	}
	all := []memory.Entry{}
	broken, err := kept.Export(func(e memory.Entry) error { all = append(all, e); return nil })
	if err != nil {
		return err
	}
	if err := u.printJSON(struct {
		Memories []memory.Entry `json:"memories"`
	}{all}); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("these cannot be read and were left out: %q", broken)
	}
	return nil
}

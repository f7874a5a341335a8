package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/configfile"
	"github.com/sallyport/sallyport/internal/folder"
	"github.com/sallyport/sallyport/internal/settings"
)

type configGetCmd struct {
	Key  string `arg:"" help:"The setting." complete:"keys"`
	JSON bool   `help:"Print the value, its origin and its variables as JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*configGetCmd) Help() string {
	return `Prints the value in force, from wherever it comes. The parts of a list are printed one a line. Secrets are not shown.

Examples:
  sallyport config get limits.memory
  sallyport config get servers.sources --json`
}

// Run implements the command.
func (c *configGetCmd) Run(u *ui) error {
	if err := settings.Known(c.Key); err != nil {
		return err
	}
	if err := u.loadSettings(); err != nil {
		return err
	}
	e := u.Settings.Entry(c.Key)
	if c.JSON {
		return u.printJSON(e)
	}
	lines := []string{fmt.Sprint(e.Value)}
	if list, ok := e.Value.([]string); ok {
		lines = list
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(u.stdio.Out, l); err != nil {
			return err
		}
	}
	return nil
}

type configSetCmd struct {
	Key    string   `arg:"" help:"The setting." complete:"keys"`
	Values []string `arg:"" name:"value" help:"Its value; several for a list, or parts with commas between them; '' for an empty list; - for a secret on standard input, which a terminal does not show." complete:"values"`
}

// Help implements kong's HelpProvider.
func (*configSetCmd) Help() string {
	return `Changes the configuration file and keeps its comments and order. The file is checked first, and replaced whole or not at all; a new one is readable only by you. A relative path is relative to the current directory.

Examples:
  sallyport config set limits.memory 1g
  sallyport config set servers.sources mcps cursor
  sallyport config set image ghcr.io/you/tools:1`
}

// Run implements the command.
func (c *configSetCmd) Run(u *ui) error {
	src := u.Env.Sources(u.Dir, u.grammar.ConfigFile)
	parts, hidden := c.Values, false
	if len(parts) == 1 && parts[0] == "-" {
		secret, err := u.secret()
		if err != nil {
			return err
		}
		parts, hidden = []string{secret}, true
	}
	value, err := settings.Value(c.Key, parts, src.Home, src.Dir, hidden)
	if err != nil {
		return err
	}
	if c.Key == settings.MountsKey {
		if err := u.checkFolders(parts); err != nil {
			return err
		}
	}
	if err := u.changeConfig(func(content []byte) ([]byte, error) { return configfile.Set(content, c.Key, value) }); err != nil {
		return err
	}
	u.tellOverride(c.Key)
	return nil
}

// checkFolders returns an error for a folder that no sandbox may see. One that is gone
// may come back: the user gets a warning.
func (u *ui) checkFolders(list []string) error {
	if u.loadSettings() != nil {
		return nil // this may be the change that corrects the file
	}
	if len(list) == 1 {
		list = strings.Split(list[0], ",")
	}
	rules := u.FolderRules()
	for _, text := range list {
		_, err := rules.Read(strings.TrimSpace(text))
		switch {
		case text == "" || err == nil:
		case errors.Is(err, folder.ErrGone):
			u.warn([]string{fmt.Sprintf("%s: %v", settings.MountsKey, err)})
		default:
			return fmt.Errorf("%s: %w", settings.MountsKey, err)
		}
	}
	return nil
}

// tellOverride warns if the file's value of a setting is not the one in force.
func (u *ui) tellOverride(key string) {
	if u.loadSettings() != nil {
		return // a variable is wrong: every other command says so
	}
	if o := u.Settings.Origin(key); o.Overrides() {
		u.warn([]string{fmt.Sprintf("%s overrides the file: %s stays %v", o.Name, key, u.Settings.Entry(key).Value)})
	}
}

type configUnsetCmd struct {
	Keys []string `arg:"" name:"key" help:"The settings." complete:"keys"`
}

// Help implements kong's HelpProvider.
func (*configUnsetCmd) Help() string {
	return `The settings have their default values then, unless a variable sets them. A setting that is not in the file is not an error. 'environments.NAME' removes an environment.

Examples:
  sallyport config unset limits.memory
  sallyport config unset environments.data`
}

// Run implements the command.
func (c *configUnsetCmd) Run(u *ui) error {
	var keys []string
	for _, key := range c.Keys {
		named, err := settings.KeysOf(key)
		if err != nil {
			return err
		}
		keys = append(keys, named...)
	}
	return u.changeConfig(func(content []byte) (_ []byte, err error) {
		for _, key := range keys {
			if content, err = configfile.Unset(content, key); err != nil {
				return nil, err
			}
		}
		return content, nil
	})
}

type configPathCmd struct{}

// Help implements kong's HelpProvider.
func (*configPathCmd) Help() string {
	return `The file need not exist.

Example:
  sallyport config path`
}

// Run implements the command.
func (*configPathCmd) Run(u *ui) error {
	path, err := u.configPath()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(u.stdio.Out, path)
	return err
}

func (u *ui) configPath() (string, error) {
	path := settings.ConfigPath(u.Env.Sources(u.Dir, u.grammar.ConfigFile))
	if path == "" {
		return "", errors.New("there is no home directory for a configuration file: name one with --config")
	}
	return path, nil
}

// changeConfig changes the configuration file, if the result is valid.
func (u *ui) changeConfig(change func([]byte) ([]byte, error)) error {
	path, err := u.configPath()
	if err != nil {
		return err
	}
	f, err := configfile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := f.Read()
	if err != nil {
		return err
	}
	after, err := change(before)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	if err := settings.Validate(path, u.Env.Sources(u.Dir, "").Home, after); err != nil {
		return err
	}
	return f.Replace(before, after)
}

type configEditCmd struct{}

// Help implements kong's HelpProvider.
func (*configEditCmd) Help() string {
	return `Opens a copy in $VISUAL or $EDITOR, or else in an editor of this machine. The copy takes the place of the file if it is valid; otherwise you can go on editing, or keep the old file.

Example:
  EDITOR=nano sallyport config edit`
}

// newConfig is what an editor shows where there is no file.
const newConfig = `# Settings of Sallyport, such as
#
# limits:
#   memory: 1g
#
# 'sallyport config' prints all settings with their values.
`

// Run implements the command.
func (*configEditCmd) Run(u *ui) error {
	editor, err := u.editor()
	if err != nil {
		return err
	}
	path, err := u.configPath()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sallyport-config-") // 0700
	if err != nil {
		return err
	}
	draft, edited := filepath.Join(dir, "config.yaml"), false
	err = u.changeConfig(func(before []byte) ([]byte, error) {
		text := before
		if before == nil {
			text = []byte(newConfig)
		}
		if err := os.WriteFile(draft, text, 0o600); err != nil {
			return nil, err
		}
		for {
			failed := u.lend(func() error { return edit(editor(draft)) })
			after, err := os.ReadFile(draft)
			if err != nil {
				return nil, errors.Join(failed, err)
			}
			edited = !bytes.Equal(after, text)
			switch {
			case u.ctx.Err() != nil:
				return nil, u.ctx.Err()
			case failed != nil:
				return nil, fmt.Errorf("the editor failed, so nothing has changed: %w", failed)
			case !edited:
				fmt.Fprintln(u.stdio.Err, "sallyport: nothing has changed")
				return before, nil
			}
			wrong := settings.Validate(path, u.Env.Sources(u.Dir, "").Home, after)
			if wrong == nil {
				return after, nil
			}
			fmt.Fprintf(u.stdio.Err, "sallyport: %v\nGo on editing? Otherwise the old file stays. [Y/n] ", wrong)
			answer, err := u.line()
			if u.ctx.Err() != nil {
				return nil, u.ctx.Err()
			}
			if answer = strings.ToLower(strings.TrimSpace(answer)); err != nil || answer != "" && answer != "y" && answer != "yes" {
				return nil, errors.New("the old file stays")
			}
		}
	})
	if err != nil && edited {
		fmt.Fprintf(u.stdio.Err, "\nsallyport: what you wrote is kept in %s\n", draft)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// edit runs an editor until it ends. If the command ends before, the editor is
// asked to end: editors keep what was not saved then.
func edit(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // as on Windows
			return cmd.Process.Kill()
		}
		return nil
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}

// editor returns how the user's editor is called. $VISUAL and $EDITOR may have
// arguments, as for git.
func (u *ui) editor() (func(file string) *exec.Cmd, error) {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		line := u.Env[name]
		switch {
		case strings.TrimSpace(line) == "":
		case runtime.GOOS == "windows":
			return func(file string) *exec.Cmd {
				words := append(strings.Fields(line), file)
				return exec.CommandContext(u.ctx, words[0], words[1:]...)
			}, nil
		default:
			return func(file string) *exec.Cmd {
				// Ctrl-C is for the editor, and not for its shell.
				return exec.CommandContext(u.ctx, "/bin/sh", "-c", "trap : INT QUIT; "+line+` "$@"`, line, file)
			}, nil
		}
	}
	for _, name := range []string{"sensible-editor", "nano", "vi", "notepad"} {
		if path, err := exec.LookPath(name); err == nil {
			return func(file string) *exec.Cmd { return exec.CommandContext(u.ctx, path, file) }, nil
		}
	}
	return nil, errors.New("no editor was found: set EDITOR")
}

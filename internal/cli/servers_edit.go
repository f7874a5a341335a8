package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

type serversAddCmd struct {
	serversFlags
	Name        string   `arg:"" help:"The server's name."`
	Command     []string `arg:"" optional:"" passthrough:"partial" help:"The server's program and its arguments, with their flags." complete:"files"`
	URL         string   `help:"URL of a remote server, instead of a command." placeholder:"URL"`
	Transport   string   `help:"Transport of the remote server: http or sse (default: http, then sse if the server does not support http)." placeholder:"KIND" enum:"http,sse," default:""`
	Header      []string `help:"A header for a remote server. Can be repeated." sep:"none" placeholder:"NAME=VALUE"`
	Env         []string `help:"A variable for the program. Can be repeated." sep:"none" placeholder:"NAME=VALUE"`
	Cwd         string   `help:"The folder that the program runs in." placeholder:"FOLDER"`
	Description string   `help:"What the server is for." placeholder:"TEXT"`
}

// Help implements kong's HelpProvider.
func (*serversAddCmd) Help() string {
	return `Writes the definition to ~/MCPs/NAME.json, which you can edit. Flags of 'servers add' come before the program: what follows the program belongs to it. -- may end them. In values, ${NAME} stands for an environment variable, ${file:PATH} for the contents of a file, and ${keyring:NAME} for an entry in the system's keyring, so that secrets need not be in the file.

Examples:
  sallyport servers add filesystem npx -y @modelcontextprotocol/server-filesystem ~/notes
  sallyport servers add github --env 'GITHUB_TOKEN=${GITHUB_TOKEN}' -- github-mcp-server stdio
  sallyport servers add docs --url https://example.com/mcp --header 'Authorization=Bearer ${keyring:docs}'`
}

// ours returns an error if a flag of this command stands among the program's words:
// it may be meant for either.
func (c *serversAddCmd) ours(kctx *kong.Context) error {
	before := kctx.Args[:max(0, len(kctx.Args)-len(c.Command))]
	for i, word := range c.Command {
		name, _, joined := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		f := findFlag(kctx.Selected(), name)
		if i == 0 || f == nil || !strings.HasPrefix(word, "--") {
			continue
		}
		end := i + 1
		if !joined && !f.IsBool() {
			end = min(end+1, len(c.Command))
		}
		flag, others := c.Command[i:end], slices.Concat(c.Command[:i], c.Command[end:])
		return fmt.Errorf("%s follows the program. If it is Sallyport's: sallyport %s\nIf it is the program's: sallyport %s",
			"--"+name, shellLine(slices.Concat(before, flag, []string{"--"}, others)), shellLine(slices.Concat(before, []string{"--"}, c.Command)))
	}
	return nil
}

// findFlag returns a flag of a command, or of those above it.
func findFlag(node *kong.Node, name string) *kong.Flag {
	for ; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}

// shellLine returns a command line without the values of NAME=VALUE, which may be
// keys.
func shellLine(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		flag := ""
		if i > 0 {
			flag = words[i-1]
		}
		for _, secret := range []string{"--env", "--header"} {
			if rest, ok := strings.CutPrefix(word, secret+"="); ok {
				name, _, _ := strings.Cut(rest, "=")
				word = secret + "=" + name + "=VALUE"
			} else if flag == secret {
				name, _, _ := strings.Cut(word, "=")
				word = name + "=VALUE"
			}
		}
		word = invisible.Line(word)
		if bare := strings.TrimLeft(word, "-"); bare == "" || terminal.ShellWord(bare) == bare {
			out[i] = word // a flag
			continue
		}
		out[i] = terminal.ShellWord(word)
	}
	return strings.Join(out, " ")
}

// Run implements the command.
func (c *serversAddCmd) Run(u *ui, kctx *kong.Context) error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:] // it ends the flags
	} else if err := c.ours(kctx); err != nil {
		return err
	}
	entry := definitions.Entry{URL: c.URL, Transport: definitions.Transport(c.Transport), Dir: c.Cwd, Description: c.Description}
	switch {
	case len(c.Command) == 0 && c.URL == "":
		return errors.New("give the server's program, or --url URL")
	case c.URL == "" && len(c.Command) == 1 && (strings.HasPrefix(c.Command[0], "https://") || strings.HasPrefix(c.Command[0], "http://")):
		return fmt.Errorf("a URL is no program: sallyport servers add %s --url URL", terminal.ShellWord(invisible.Line(c.Name)))
	case len(c.Command) > 0 && c.URL != "":
		return errors.New("give either a command or --url")
	case c.URL == "" && (len(c.Header) > 0 || c.Transport != ""):
		return errors.New("--header and --transport are for a remote server: give --url")
	case c.URL != "" && (len(c.Env) > 0 || c.Cwd != ""):
		return errors.New("--env and --cwd are for a program, not for a remote server")
	case len(c.Command) > 0:
		entry.Command, entry.Args = c.Command[0], c.Command[1:]
	}
	var err error
	if entry.Env, err = pairs("--env", c.Env); err != nil {
		return err
	}
	if entry.Headers, err = pairs("--header", c.Header); err != nil {
		return err
	}
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	text, err := entry.Text()
	if err != nil {
		return err
	}
	path, err := lib.Add(c.Name, text)
	if err != nil {
		return err
	}
	fmt.Fprintf(u.stdio.Out, "%s is defined in %s. Try it with: sallyport servers test %s\n", printable(c.Name), path, terminal.ShellWord(invisible.Line(c.Name)))
	now := lib.Current(true)
	d, ok := now.Get(c.Name)
	switch {
	case !ok: // another process has removed it
		return nil
	case d.File != path:
		u.warn([]string{fmt.Sprintf("%s, line %d, also defines it, and takes precedence", printable(d.File), d.Line)})
		return nil
	}
	for _, p := range now.Problems {
		if p.Server == c.Name && p.File == path {
			u.warn([]string{p.Reason})
		}
	}
	if err := upstream.Missing(d, upstream.Options{Environ: u.Env.List(), Dir: u.Dir, Inherit: u.Settings.Servers.Inherit}); err != nil {
		u.warn([]string{"it cannot be started yet: " + invisible.Escape(err.Error())})
	}
	return nil
}

// pairs parses NAME=VALUE arguments. It does not show their values: they may be
// keys.
func pairs(flag string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s: write NAME=VALUE", flag)
		}
		out[strings.TrimSpace(name)] = value
	}
	return out, nil
}

type serversImportCmd struct {
	serversFlags
	From  string   `arg:"" help:"A client, as sallyport install --help lists them, or a file." complete:"clients|files"`
	Names []string `arg:"" optional:"" help:"The servers to copy (default: all)."`
	JSON  bool     `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*serversImportCmd) Help() string {
	return `Servers of other clients work without being copied; copy them to change them, or before you remove the client. References to variables are copied as references, not as values. Servers that are in ~/MCPs already are not changed.

Examples:
  sallyport servers import cursor
  sallyport servers import ~/project/.mcp.json github`
}

// imported says what happened to one server.
type imported struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Left string `json:"left,omitempty"` // why it was not copied
}

// Run implements the command.
func (c *serversImportCmd) Run(u *ui) error {
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	found, problems, err := lib.Translate(c.From)
	if err != nil {
		return err
	}
	byName := map[string]definitions.Translated{}
	var names []string
	for _, t := range found {
		byName[t.Name] = t
		names = append(names, t.Name)
	}
	wanted := c.Names
	if len(wanted) == 0 {
		wanted = names
	}
	out := []imported{}
	copied := 0
	for _, name := range wanted {
		t, ok := byName[name]
		if !ok {
			return fmt.Errorf("%s has no server %q; the nearest of %d: %s", c.From, name, len(names), printable(strings.Join(definitions.Near(name, names, 5), ", ")))
		}
		i := imported{Name: name}
		if i.File, err = lib.Add(name, t.Entry); err != nil {
			i.File, i.Left = "", err.Error()
		} else {
			copied++
		}
		out = append(out, i)
	}
	if c.JSON {
		if err := u.printJSON(struct {
			Servers  []imported `json:"servers"`
			Problems []string   `json:"problems,omitempty"`
		}{out, problems}); err != nil {
			return err
		}
	} else {
		for _, i := range out {
			if i.Left != "" {
				fmt.Fprintf(u.stdio.Err, "sallyport: %s is left out: %s\n", printable(i.Name), i.Left)
			} else {
				fmt.Fprintf(u.stdio.Out, "%s -> %s\n", printable(i.Name), i.File)
			}
		}
		u.warn(problems)
		if len(out) == 0 {
			fmt.Fprintf(u.stdio.Out, "%s defines no servers.\n", c.From)
		}
	}
	if len(out) > 0 && copied == 0 {
		return exitError(exitFailed)
	}
	return nil
}

type serversRemoveCmd struct {
	serversFlags
	Name string `arg:"" help:"The server's name." complete:"own-servers"`
}

// Help implements kong's HelpProvider.
func (*serversRemoveCmd) Help() string {
	return `Only what is defined in ~/MCPs can be removed. The servers of another client belong to that client; switch one off with 'sallyport servers disable'.

Example:
  sallyport servers remove filesystem`
}

// Run implements the command.
func (c *serversRemoveCmd) Run(u *ui) error {
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	d, err := find(lib, c.Name)
	if err != nil {
		return err
	}
	path, err := lib.Remove(d.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(u.stdio.Out, "%s is removed from %s.\n", printable(d.Name), path)
	if d, ok := lib.Current(true).Get(d.Name); ok {
		fmt.Fprintf(u.stdio.Out, "The definition in %s, line %d (%s), now counts.\n", printable(d.File), d.Line, d.Source)
	}
	return nil
}

// switchFlags are the flags of enable and disable.
type switchFlags struct {
	serversFlags
	Names []string `arg:"" help:"The servers' names." complete:"all-servers"`
}

type serversEnableCmd struct{ switchFlags }

// Help implements kong's HelpProvider.
func (*serversEnableCmd) Help() string {
	return `The choice is stored in the state directory; files of other programs are not changed.

Example:
  sallyport servers enable github`
}

// Run implements the command.
func (c *serversEnableCmd) Run(u *ui) error { return c.turn(u, true) }

type serversDisableCmd struct{ switchFlags }

// Help implements kong's HelpProvider.
func (*serversDisableCmd) Help() string {
	return `The choice is stored in the state directory; files of other programs are not changed. A running server is stopped.

Example:
  sallyport servers disable github`
}

// Run implements the command.
func (c *serversDisableCmd) Run(u *ui) error { return c.turn(u, false) }

func (c *switchFlags) turn(u *ui, on bool) error {
	lib, _, err := u.openLibrary(&c.serversFlags)
	if err != nil {
		return err
	}
	defer lib.Close()
	var names []string
	for _, text := range c.Names {
		d, err := find(lib, text)
		if err != nil {
			return err
		}
		names = append(names, d.Name)
	}
	for _, name := range names {
		if err := lib.Switch(name, on); err != nil {
			return err
		}
	}
	for _, name := range names {
		d, err := find(lib, name)
		if err != nil {
			return err
		}
		l := serverLineOf(u.App, d, "")
		fmt.Fprintf(u.stdio.Out, "%s is %s%s\n", printable(name), l.State, wayOut(l))
	}
	return nil
}

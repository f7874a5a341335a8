package definitions

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Definition is one server that the user has. Its exported fields are fit to
// be shown; see the package comment about secrets. It is not changed after it
// was made and may be copied.
//
// All definitions are of programs that speak over standard input and output.
// Remote servers will be a second kind beside launch.
type Definition struct {
	Name        string   `json:"name"`
	Alias       string   `json:"alias,omitempty"` // filled by upstream.NewManager
	Description string   `json:"description,omitempty"`
	Command     string   `json:"command"`
	Args        []string `json:"args,omitempty"`
	Dir         string   `json:"cwd,omitempty"`
	EnvNames    []string `json:"env,omitempty"`
	Disabled    bool     `json:"disabled,omitempty"`
	// AllowTools, when not nil, names the only tools that may be used;
	// DenyTools names tools that may not.
	AllowTools []string `json:"allowTools,omitempty"`
	DenyTools  []string `json:"denyTools,omitempty"`
	// File and Line say where the definition was read.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`

	// A pointer, so that printing a structure that contains a Definition
	// does not reach what it points to.
	launch *launch
}

type launch struct {
	Launch
	redact *strings.Replacer
}

// Launch is what a server is really started with, secrets included. It does
// not show when it is printed or logged.
type Launch struct {
	Command string
	Args    []string
	Env     map[string]string // in addition to what every server gets
	Dir     string            // absolute, or empty
}

const redacted = "[redacted]"

func (Launch) String() string               { return redacted }
func (Launch) GoString() string             { return redacted }
func (Launch) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Launch) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// New makes a Definition of what a program says itself, without expansion.
func New(name, description string, l Launch) Definition {
	d := Definition{Name: name, Description: description}
	d.setLaunch(l, Launch{Command: l.Command, Args: l.Args, Dir: l.Dir}, nil)
	return d
}

// setLaunch sets what is started and, from what was written, what is shown.
// expanded are the values of the variables that were put in.
func (d *Definition) setLaunch(l, written Launch, expanded map[string]string) {
	l.Args, l.Env = slices.Clone(l.Args), maps.Clone(l.Env)
	secrets := newSecrets()
	for name, value := range expanded {
		if slices.Contains(everyday, name) {
			continue
		}
		secrets.add("${"+name+"}", value)
	}
	for name, value := range l.Env {
		secrets.add("${"+name+"}", value)
	}
	d.Command = written.Command
	d.Dir = written.Dir
	d.Args = maskArgs(written.Args, secrets)
	d.EnvNames = slices.Sorted(maps.Keys(l.Env))
	// Two passes of masking find the same secret whether it was expanded or not.
	maskArgs(l.Args, secrets)
	d.launch = &launch{Launch: l, redact: secrets.replacer()}
	for i, arg := range d.Args {
		d.Args[i] = d.launch.redact.Replace(arg)
	}
}

// Launch returns what the server is started with, for reading. It is a pointer
// so that printing a structure that keeps it shows nothing.
func (d Definition) Launch() *Launch {
	if d.launch == nil {
		return new(Launch)
	}
	return &d.launch.Launch
}

// Redact replaces every secret of the definition in a text by the name of the
// variable that holds it: values of env and of expanded variables of four
// bytes and more, and what is masked in the arguments.
func (d Definition) Redact(text string) string {
	if d.launch == nil {
		return text
	}
	return d.launch.redact.Replace(text)
}

// CommandLine is the command and its arguments as they may be shown.
func (d Definition) CommandLine() string {
	var b strings.Builder
	b.WriteString(quoteArg(d.Command))
	for _, arg := range d.Args {
		b.WriteByte(' ')
		b.WriteString(quoteArg(arg))
	}
	return b.String()
}

func (d Definition) String() string   { return d.Name + ": " + d.CommandLine() }
func (d Definition) GoString() string { return "definitions.Definition{" + d.String() + "}" }

// LogValue implements slog.LogValuer.
func (d Definition) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", d.Name), slog.String("command", d.CommandLine()))
}

// ToolAllowed reports whether the definition lets this tool be used.
func (d Definition) ToolAllowed(name string) bool {
	return !slices.Contains(d.DenyTools, name) && (d.AllowTools == nil || slices.Contains(d.AllowTools, name))
}

// quoteArg quotes for reading, not for a shell.
func quoteArg(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n\r\"'\\|&;<>()?[]#~`!") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// Problem is something wrong with a file or an entry.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"` // 0: the file as a whole
	Server string `json:"server,omitempty"`
	Reason string `json:"reason"`
	// Warning: the entry is used all the same.
	Warning bool `json:"warning,omitempty"`
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(p.Line))
	}
	b.WriteString(": ")
	if p.Server != "" {
		b.WriteString("server " + p.Server + ": ")
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Reason)
	return b.String()
}

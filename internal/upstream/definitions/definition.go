package definitions

import (
	"fmt"
	"github.com/sallyport/sallyport/internal/redact"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Transport is how a server is reached.
type Transport string

// The transports.
const (
	Stdio Transport = "stdio" // a program on this machine; also the zero value
	HTTP  Transport = "http"  // streamable HTTP
	SSE   Transport = "sse"   // HTTP with server-sent events, of 2024-11-05
	// Auto is for a URL without a type: streamable HTTP, or SSE if the server does
	// not know that.
	Auto Transport = "auto"
)

// Offer says why a definition waits for the user's approval.
type Offer string

// The offers. A definition with none may be used.
const (
	Offered Offer = "offered" // from a project that the user has not trusted
	Changed Offer = "changed" // trusted once, but changed since
)

// Definition is one of the user's servers. Its exported fields are fit to be
// shown; see the package comment about secrets. It is not modified after its
// creation, and may be copied.
type Definition struct {
	Name        string    `json:"name"`
	Alias       string    `json:"alias,omitempty"` // filled by upstream.Manager
	Description string    `json:"description,omitempty"`
	Transport   Transport `json:"transport,omitempty"`
	Command     string    `json:"command,omitempty"`
	Args        []string  `json:"args,omitempty"`
	Dir         string    `json:"cwd,omitempty"`
	EnvNames    []string  `json:"env,omitempty"`
	URL         string    `json:"url,omitempty"`
	HeaderNames []string  `json:"headers,omitempty"`
	Disabled    bool      `json:"disabled,omitempty"`
	Offer       Offer     `json:"offer,omitempty"`
	// AllowTools, if not nil, lists the only tools that may be used. DenyTools
	// lists tools that may not be used; "*" means all.
	AllowTools []string `json:"allowTools,omitempty"`
	DenyTools  []string `json:"denyTools,omitempty"`
	// How long a start and a call may take, if the definition says so; 0 means the
	// limit of the settings.
	StartTimeout time.Duration `json:"startTimeout,omitempty"`
	CallTimeout  time.Duration `json:"callTimeout,omitempty"`
	// Sharing says for whom one server runs, if the definition says so; see Shares.
	Sharing Sharing `json:"sharing,omitempty"`
	// Source is the kind of place, such as "cursor". File and Line are where the
	// definition was read.
	Source string `json:"source,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Uses names the variables, files and keyring entries whose values the server
	// gets.
	Uses []string `json:"uses,omitempty"`
	// Shadowed are definitions of the same name that this one hides.
	Shadowed []Origin `json:"shadowed,omitempty"`

	// A pointer, so that printing a structure that contains a Definition does not
	// print what it points to.
	launch *launch
}

// Origin is a place where a server is defined.
type Origin struct {
	Source string `json:"source"`
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
}

type launch struct {
	Launch
	remote *Remote // nil: a program
	// secrets are what redact hides; a copy is extended by Resolve.
	secrets *secrets
	redact  *redactor
	// digest covers everything that was written, secrets included.
	digest [32]byte
	// written is the entry as it was written, for projects only: it holds none of
	// the user's secrets.
	written string
	// also describes, line by line, what the entry refers to but does not
	// contain, for projects only.
	also []string
	// hide is Redact for secrets that change while the server runs; it may be nil.
	hide func(string) string
	// references means that Resolve has something to do. In a format without
	// references, nothing counts as one.
	references bool
}

// Launch is what a server is actually started with, secrets included. It shows
// nothing when it is printed or logged.
type Launch struct {
	Command string
	Args    []string
	Env     map[string]string // in addition to what every server gets
	Dir     string            // absolute, or empty
}

// Remote is how a remote server is actually reached, secrets included. It shows
// nothing when it is printed or logged.
type Remote struct {
	Transport Transport // HTTP, SSE or Auto
	URL       string
	Headers   map[string]string // a bearer token is a header, Authorization
	TLS       TLS
	OAuth     OAuth
}

// TLS holds the options of a connection. The zero value is right for almost
// everyone.
type TLS struct {
	CAFile            string // certificates to trust in addition to the system's
	CertFile, KeyFile string // what we show to the server
	ServerName        string
	Insecure          bool // do not check the server's certificate
}

const redacted = "[redacted]"

func (Launch) String() string               { return redacted }
func (Launch) GoString() string             { return redacted }
func (Launch) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Launch) MarshalText() ([]byte, error) { return []byte(redacted), nil }

func (Remote) String() string               { return redacted }
func (Remote) GoString() string             { return redacted }
func (Remote) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Remote) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// New makes a Definition from what the program itself says, without expansion.
func New(name, description string, l Launch) Definition {
	d := Definition{Name: name, Description: description}
	d.setLaunch(l, Launch{Command: l.Command, Args: l.Args, Dir: l.Dir}, nil)
	return d
}

// NewRemote is New for a remote server.
func NewRemote(name, description string, r Remote) Definition {
	d := Definition{Name: name, Description: description}
	d.setRemote(r, r.URL, nil)
	return d
}

// setLaunch sets what is started and, from what was written, what is shown.
// expanded has the values of the variables that were expanded.
func (d *Definition) setLaunch(l, written Launch, expanded map[string]string) {
	l.Args, l.Env = slices.Clone(l.Args), maps.Clone(l.Env)
	secrets := newSecrets()
	secrets.expanded(expanded)
	for name, value := range l.Env {
		secrets.add("${"+name+"}", value)
	}
	d.Transport = Stdio
	d.Command = written.Command
	d.Dir = written.Dir
	d.Args = maskArgs(written.Args, secrets)
	d.EnvNames = slices.Sorted(maps.Keys(l.Env))
	// Masking both finds the same secret whether it was expanded or not.
	maskArgs(l.Args, secrets)
	d.launch = &launch{Launch: l, secrets: secrets, redact: secrets.redactor()}
	for i, arg := range d.Args {
		d.Args[i] = d.launch.redact.Replace(arg)
	}
}

// setRemote is setLaunch for a remote server.
func (d *Definition) setRemote(r Remote, written string, expanded map[string]string) {
	r.Headers = maps.Clone(r.Headers)
	secrets := newSecrets()
	secrets.expanded(expanded)
	for name, value := range r.Headers {
		secrets.header(name, value)
	}
	for _, value := range r.OAuth.secret() {
		secrets.add(mask, value)
	}
	d.Transport = r.Transport
	d.URL = maskURL(written, secrets)
	d.HeaderNames = slices.Sorted(maps.Keys(r.Headers))
	maskURL(r.URL, secrets)
	d.launch = &launch{remote: &r, secrets: secrets, redact: secrets.redactor()}
	d.URL = d.launch.redact.Replace(d.URL)
}

// StartedAs returns the definition with the secrets of a server that was started
// for another definition, so that Redact hides those too. Both are started in the
// same way.
func (d Definition) StartedAs(other Definition) Definition {
	if d.launch == nil || other.launch == nil || !d.launch.references && other.launch.hide == nil {
		return d // it contains everything to hide
	}
	l := *d.launch
	l.hide = other.launch.hide
	l.secrets = l.secrets.clone()
	for value, shown := range other.launch.secrets.shown {
		if _, ok := l.secrets.shown[value]; !ok {
			l.secrets.shown[value] = shown
		}
	}
	l.redact = l.secrets.redactor()
	d.launch = &l
	return d
}

// Launch returns what the server is started with. The caller must not modify
// it. It is a pointer, so that printing a structure that holds it shows
// nothing. It is empty for a remote server.
func (d Definition) Launch() *Launch {
	if d.launch == nil {
		return new(Launch)
	}
	return &d.launch.Launch
}

// Remote returns how the server is reached, or nil if it is a program on this
// machine. The caller must not modify it.
func (d Definition) Remote() *Remote {
	if d.launch == nil {
		return nil
	}
	return d.launch.remote
}

// Written returns the whole entry as it stands in a project's file, for whoever
// decides whether to trust it. It is empty for other definitions.
func (d Definition) Written() string {
	if d.launch == nil {
		return ""
	}
	return d.launch.written
}

// Also describes, line by line, what else from a project's files goes into
// the entry: the variables of its env file and of the project's settings of
// Claude Code, and the defaults of its inputs.
func (d Definition) Also() []string {
	if d.launch == nil {
		return nil
	}
	return slices.Clone(d.launch.also)
}

// Redact replaces every secret of the definition in a string by the name of the
// variable that holds it. Secrets are the values of env, of headers and of
// expanded variables, if they have at least four bytes, and what is masked in
// the arguments and the URL. Where one is encoded, a mask replaces it.
func (d Definition) Redact(text string) string {
	if d.launch == nil {
		return text
	}
	r := d.launch.redact
	if hide := d.launch.hide; hide != nil {
		text = hide(text)
	}
	return r.encoded().Text(r.Replace(text))
}

// Hiding returns the definition with a Redact that hides more.
func (d Definition) Hiding(hide func(text string) string) Definition {
	l := *d.launch
	l.hide = hide
	d.launch = &l
	return d
}

// Hider returns a function that is Redact with one mark for every secret, also where
// Redact shows the name of a variable.
func (d Definition) Hider(mark string) func(text string) string {
	if d.launch == nil {
		return func(text string) string { return text }
	}
	r := d.launch.redact
	pairs := make([]string, 0, 2*len(r.values))
	for _, value := range r.values {
		pairs = append(pairs, value, mark)
	}
	plain := strings.NewReplacer(pairs...)
	return func(text string) string {
		text = plain.Replace(text)
		if shown := r.encoded().Text(text); shown != text {
			return strings.ReplaceAll(shown, redact.Mask, mark)
		}
		return text
	}
}

// CommandLine returns the command with its arguments, or the URL, fit to be
// shown.
func (d Definition) CommandLine() string {
	if d.Command == "" && d.URL != "" {
		return d.URL
	}
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

// State returns one word for what can be done with the server: ready, disabled,
// offered or changed.
func (d Definition) State() string {
	switch {
	case d.Disabled:
		return "disabled"
	case d.Offer != "":
		return string(d.Offer)
	}
	return "ready"
}

// ToolAllowed reports whether the definition allows the use of a tool.
func (d Definition) ToolAllowed(name string) bool {
	denied := slices.Contains(d.DenyTools, "*") || slices.Contains(d.DenyTools, name)
	return !denied && (d.AllowTools == nil || slices.Contains(d.AllowTools, name))
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
	// Warning means that the entry is used anyway.
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
	return printable(b.String())
}

// printable escapes everything that could control a terminal: names of files
// and servers may come from a stranger.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Secrets returns what Redact hides.
func (d Definition) Secrets() []string {
	if d.launch == nil {
		return nil
	}
	return slices.Collect(maps.Keys(d.launch.secrets.shown))
}

package definitions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// Translated is a server of another client in our own format, with the user's
// variables unexpanded.
type Translated struct {
	Name  string
	Entry json.RawMessage
	// From is the original definition.
	From Definition
}

// Translate reads sources as Load does and returns their servers in our own
// format, for a file in ~/MCPs.
func Translate(sources []Source, opts Options) ([]Translated, []Problem) {
	opts.translate = true
	l := newLoader(opts)
	for _, source := range sources {
		if source.Dir != "" {
			l.dir(source)
		}
		if source.File != "" {
			l.file(source)
		}
	}
	l.finish()
	// What the rest of a file says about its servers is known only now.
	var out []Translated
	for _, t := range l.translated {
		for _, d := range l.defs {
			if d.Name == t.Name {
				t.From = d
				out = append(out, t)
			}
		}
	}
	for i := range out {
		var e entryText
		if json.Unmarshal(out[i].Entry, &e) != nil {
			continue // we wrote it
		}
		d := &out[i].From
		e.Disabled, e.EnabledTools, e.DisabledTools = d.Disabled, d.AllowTools, d.DenyTools
		if text, err := encode(e); err == nil {
			out[i].Entry = text
		}
	}
	return out, l.problems
}

// entryText is an entry in our own format. An empty list differs from a missing
// one.
type entryText struct {
	Type          Transport         `json:"type,omitempty"`
	Description   string            `json:"description,omitempty"`
	Command       string            `json:"command,omitempty"`
	Args          []string          `json:"args,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	EnvFile       string            `json:"envFile,omitempty"`
	Cwd           string            `json:"cwd,omitempty"`
	URL           string            `json:"url,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	TLS           map[string]any    `json:"tls,omitempty"`
	OAuth         any               `json:"oauth,omitempty"`
	Disabled      bool              `json:"disabled,omitempty"`
	EnabledTools  []string          `json:"enabledTools,omitzero"`
	DisabledTools []string          `json:"disabledTools,omitempty"`
	StartTimeout  string            `json:"startTimeout,omitempty"`
	CallTimeout   string            `json:"callTimeout,omitempty"`
	Sharing       Sharing           `json:"sharing,omitempty"`
}

// translate writes an entry that was read without expansion.
func (f *fileReader) translate(p *entryParser, d Definition) {
	e := entryText{
		Description: d.Description, Disabled: d.Disabled, EnabledTools: d.AllowTools, DisabledTools: d.DenyTools,
		StartTimeout: seconds(d.StartTimeout), CallTimeout: seconds(d.CallTimeout), Sharing: d.Sharing,
	}
	if r := d.Remote(); r != nil {
		e.URL, e.Headers = r.URL, r.Headers
		if r.Transport != Auto {
			e.Type = r.Transport
		}
		e.TLS, e.OAuth = tlsText(r.TLS), r.OAuth.entry()
	} else {
		e.Command, e.Args, e.Env, e.Cwd, e.EnvFile = d.Launch().Command, d.Launch().Args, d.Launch().Env, d.Launch().Dir, p.envFilePath
	}
	if p.expand.literal {
		p.warn(p.line, "it contains a literal ${…}, which would be a variable in our own format: left out")
		return
	}
	text, err := encode(e)
	if err != nil {
		p.warn(p.line, "cannot be written: %v", err)
		return
	}
	f.loader.translated = append(f.loader.translated, Translated{Name: d.Name, Entry: text})
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func tlsText(t TLS) map[string]any {
	out := map[string]any{}
	for key, value := range map[string]string{"caFile": t.CAFile, "certFile": t.CertFile, "keyFile": t.KeyFile, "serverName": t.ServerName} {
		if value != "" {
			out[key] = value
		}
	}
	if t.Insecure {
		out["insecure"] = true
	}
	return out
}

// encode writes JSON without escaping it for HTML.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// Parse reads one entry in our own format. With variables, it means what it
// would in a file in ~/MCPs. Without, nothing is expanded, nothing on this
// machine is looked at, and an unknown key is an error: the entry may come from
// sandboxed code, which must learn nothing about this machine.
func Parse(name string, entry json.RawMessage, opts Options, variables bool) (Definition, error) {
	if err := checkName(name); err != nil {
		return Definition{}, err
	}
	root, err := parseTree(entry, nil)
	if err != nil {
		var bad *parseError
		if errors.As(err, &bad) {
			err = errors.New(bad.reason)
		}
		return Definition{}, err
	}
	if opts.Env == nil || !variables {
		opts.Env = func(string) (string, bool) { return "", false }
	}
	vars := own.vars
	if !variables {
		vars = syntax{}
	}
	p := &entryParser{dialect: own, name: name, line: 1, strict: true, blind: !variables, expand: newExpander(opts.Env, opts.Home, vars)}
	d, ok := p.parse(&root, "")
	for _, problem := range p.problems {
		if !problem.Warning || !variables {
			return Definition{}, errors.New(problem.Reason)
		}
	}
	if !ok {
		return Definition{}, errors.New("it cannot be read")
	}
	if why := opts.Self.why(name, d.Launch()); why != "" && !opts.AllowSelf {
		return Definition{}, errors.New(why)
	}
	return d, nil
}

// File returns the contents of a file in ~/MCPs with one server.
func File(name string, entry json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	quoted, err := encode(name)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, `{"mcpServers": {%s: %s}}`, quoted, entry)
	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Without returns the contents of a file in our own format without one server,
// and reports whether it still has another. Everything else stays as it was
// written.
func Without(text []byte, name string) (rest []byte, more bool, err error) {
	if _, wide := utf8Of(text); wide {
		return nil, false, errors.New("the file is UTF-16, which is read but not changed: save it as UTF-8")
	}
	root, err := decode(text, own)
	if err != nil {
		return nil, false, err
	}
	servers := root.at("mcpServers")
	if _, ok := servers.get(name); !ok {
		return nil, false, fmt.Errorf("there is no server %q in it", clip(name))
	}
	if len(servers.members) == 1 {
		return nil, false, nil
	}
	value, err := hujson.Parse(bytes.TrimPrefix(text, []byte(byteOrderMark)))
	if err != nil {
		return nil, false, err
	}
	pointer, err := encode("/mcpServers/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	if err != nil {
		return nil, false, err
	}
	if err := value.Patch([]byte(`[{"op": "remove", "path": ` + string(pointer) + `}]`)); err != nil {
		return nil, false, err
	}
	return value.Pack(), true, nil
}

// Entry is the input of New, in our own format.
type Entry struct {
	Command     string
	Args        []string
	Env         map[string]string
	Dir         string
	URL         string
	Transport   Transport // of the URL; empty: unspecified
	Headers     map[string]string
	Description string
}

// Text encodes the entry as JSON.
func (e Entry) Text() (json.RawMessage, error) {
	return encode(entryText{
		Type: e.Transport, Description: e.Description, Command: e.Command, Args: e.Args, Env: e.Env,
		Cwd: e.Dir, URL: e.URL, Headers: e.Headers,
	})
}

// ClientSources returns where one client, by its name, keeps its own
// definitions.
func (p Places) ClientSources(client string) []Source {
	if _, known := ClientNamed(client); !known {
		return nil
	}
	return p.Sources([]string{client})
}

// FileSource is a file of any client, whose format is guessed from its name.
func FileSource(path string) Source {
	return Source{Name: NameConfig, File: path, dialect: formOf(path)}
}

// formOf guesses more than dialectOf, by what the table of clients says about
// files of that name: the user names the file.
func formOf(path string) *dialect {
	parts := strings.Split(strings.ToLower(strings.ReplaceAll(path, `\`, "/")), "/")
	for n := 2; n > 0; n-- {
		var found *dialect
		for _, c := range table {
			for _, f := range c.everyFile() {
				known := strings.Split(strings.ToLower(filepath.ToSlash(f.path)), "/")
				if len(known) < n || len(parts) < n || !slices.Equal(known[len(known)-n:], parts[len(parts)-n:]) {
					continue
				}
				if found != nil && found != f.dialect {
					return cmp.Or(dialectOf(path), own) // two clients call it the same
				}
				found = f.dialect
			}
		}
		if found != nil {
			return found
		}
	}
	return cmp.Or(dialectOf(path), own)
}

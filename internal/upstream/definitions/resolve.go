package definitions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Secrets reads what a definition names but does not contain. kind is "file"
// (name is an absolute path) or "keyring" (name is the entry's).
type Secrets func(ctx context.Context, kind, name string) (string, error)

// Resolve returns the definition with every ${file:…} and ${keyring:…} in args,
// env, the URL, headers and oauth replaced by its secret, which Redact hides from then
// on. It is called right before a start, so that a changed key takes effect at
// the next one. Without such references it returns the definition unchanged,
// and secrets may be nil.
func (d Definition) Resolve(ctx context.Context, secrets Secrets) (Definition, error) {
	if d.launch == nil || !d.launch.references {
		return d, nil
	}
	r := resolver{ctx: ctx, read: secrets, uses: d.Uses, asks: d.Source == "vscode" || d.Source == "project", found: d.launch.secrets.clone()}
	l := &launch{Launch: d.launch.Launch, digest: d.launch.digest, secrets: r.found}
	l.Args = slices.Clone(l.Args)
	for i := range l.Args {
		l.Args[i] = r.replace(l.Args[i])
	}
	l.Env = maps.Clone(l.Env)
	for name, value := range l.Env {
		l.Env[name] = r.replace(value)
	}
	if d.launch.remote != nil {
		remote := *d.launch.remote
		remote.URL = r.replace(remote.URL)
		remote.Headers = maps.Clone(remote.Headers)
		for name, value := range remote.Headers {
			value = r.replace(value)
			remote.Headers[name] = value
			r.found.header(name, value)
		}
		for _, text := range remote.OAuth.open() {
			*text = r.replace(*text)
		}
		l.remote = &remote
	}
	if r.err != nil {
		return d, r.err
	}
	l.redact = r.found.redactor()
	d.launch = l
	return d, nil
}

type resolver struct {
	ctx   context.Context
	read  Secrets
	uses  []string // what the definition declares that it reads
	asks  bool     // from a file in which ${input:ID} asks the user
	found *secrets
	err   error // the first
}

func (r *resolver) replace(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		inner, after, closed := strings.Cut(rest, "}")
		kind, name, colon := strings.Cut(inner, ":")
		// An expanded value may look like a reference. It is not one: the user has not
		// seen and approved it.
		if !closed || !colon || kind != "file" && kind != "keyring" || !slices.Contains(r.uses, inner) {
			b.WriteString("${")
			s = rest
			continue
		}
		b.WriteString(r.value(kind, name))
		s = after
	}
}

func (r *resolver) value(kind, name string) string {
	if r.err != nil {
		return ""
	}
	if r.read == nil {
		r.err = fmt.Errorf("${%s:%s} cannot be read here", kind, clip(name))
		return ""
	}
	value, err := r.read(r.ctx, kind, name)
	if err != nil {
		r.err = fmt.Errorf("${%s:%s}: %w", kind, clip(name), err)
		if id, ok := strings.CutPrefix(name, "input/"); ok && r.asks {
			r.err = fmt.Errorf("${input:%s}: the variable %s is not set, and %w", clip(id), clip(InputVariable(id)), err)
		}
		return ""
	}
	value = strings.TrimRight(value, "\r\n")
	r.found.add("${"+kind+":"+name+"}", value)
	return value
}

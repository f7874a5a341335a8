package definitions

import (
	"fmt"
	"path/filepath"
)

// fileReader reads the servers of one file.
type fileReader struct {
	loader  *loader
	source  Source
	dialect *dialect
	root    *node

	description string
	inputs      map[string]input
}

func (f *fileReader) read() {
	if f.dialect == own {
		f.header()
	}
	f.inputs = f.readInputs()
	groups := 0
	if f.dialect == claudeCode && f.loader.opts.Dir != "" && f.source.Project == "" {
		// As in Claude Code, what it keeps for this folder comes before what it has for
		// all.
		for _, dir := range f.loader.folders() {
			if servers := f.root.at("projects", dir, "mcpServers"); servers.kind == '{' {
				f.group(servers)
			}
		}
	}
	for _, path := range f.dialect.paths {
		servers := f.root.at(path...)
		if f.dialect.named && servers.kind == '[' {
			servers = servers.byName()
		}
		switch servers.kind {
		case 'n':
		case '{':
			groups++
			f.group(servers)
		default:
			groups++
			f.loader.problem(f.source.File, servers.line, "%s must be an object, not %s", path[len(path)-1], servers.what())
		}
	}
	if groups == 0 && f.dialect == own && !f.source.Optional {
		hint := ""
		if _, ok := f.root.get("servers"); ok {
			hint = " (its servers must be called mcpServers here)"
		} else if _, ok := f.root.get("command"); ok {
			hint = ` (write {"mcpServers": {"NAME": …}} around the definition)`
		}
		f.loader.problem(f.source.File, 0, "has no member mcpServers%s", hint)
	}
	if f.dialect.after != nil {
		// Only now: the slice grew until here, which would invalidate pointers into it.
		var defs []*Definition
		for i := range f.loader.defs {
			if d := &f.loader.defs[i]; d.File == f.source.File {
				defs = append(defs, d)
			}
		}
		f.dialect.after(f.loader, f.root, defs)
	}
}

// header reads the members next to mcpServers in our own format.
func (f *fileReader) header() {
	for i := range f.root.members {
		m := &f.root.members[i]
		switch m.key {
		case "mcpServers":
		case "description":
			if m.value.kind == '"' {
				f.description = m.value.text
			} else if m.value.kind != 'n' {
				f.loader.problem(f.source.File, m.value.line, "description must be a string, not %s", m.value.what())
			}
		case "$schema", "version", "name", "inputs", "//", "_comment", "comment":
		default:
			if f.source.Project != "" {
				if f.loader.complaints++; f.loader.complaints > maxProjectProblems {
					return
				}
			}
			f.loader.problems = append(f.loader.problems, Problem{File: f.source.File, Line: m.line, Warning: true,
				Reason: fmt.Sprintf("unknown key %q is ignored%s", clip(m.key), didYouMean(m.key, []string{"mcpServers", "description"}))})
		}
	}
}

// readInputs reads VS Code's list of inputs.
func (f *fileReader) readInputs() map[string]input {
	list := f.root.at("inputs")
	if !f.dialect.vars.inputs || list.kind != '[' {
		list = f.root.at("mcp", "inputs")
	}
	if !f.dialect.vars.inputs || list.kind != '[' {
		return nil
	}
	out := make(map[string]input)
	for i := range list.items {
		n := &list.items[i]
		if n.kind != '{' || n.at("id").text == "" {
			continue
		}
		in := input{description: clip(n.at("description").text)}
		if n.at("password").kind != 't' {
			in.fallback = n.at("default").text
		}
		out[n.at("id").text] = in
	}
	return out
}

// group reads the servers of one object.
func (f *fileReader) group(servers *node) {
	l := f.loader
	for i := range servers.members {
		m := &servers.members[i]
		if f.dialect.skip != nil && f.dialect.skip(&m.value) || f.dialect == opencode && m.value.kind != '{' {
			continue
		}
		if len(l.defs) >= maxServers {
			l.problem(f.source.File, m.line, "more than %d servers; the rest is not read", maxServers)
			return
		}
		if f.source.Project != "" {
			if l.servers++; l.servers > maxProjectServers {
				l.problem(f.source.File, m.line, "the project has more than %d servers; the rest is not read", maxProjectServers)
				return
			}
		}
		f.entry(m)
	}
}

// entry reads one server, unless its name is taken.
func (f *fileReader) entry(m *member) {
	l := f.loader
	e := newExpander(l.opts.Env, l.opts.Home, f.dialect.vars)
	e.translate = l.opts.translate
	e.folder, e.asked, e.base = l.opts.Dir, f.inputs, filepath.Dir(f.source.File)
	if f.source.Project != "" {
		e.folder, e.base = f.source.Project, f.source.Project
	}
	if f.dialect == claudeCode && !e.translate {
		e.env = l.claudeEnvironment(e, f.source.Project != "")
	}
	p := &entryParser{source: f.source, dialect: f.dialect, name: m.key, line: m.line, expand: e, room: l.room(f.source.Project != ""), strict: f.dialect == own}
	defer func() {
		if f.source.Project != "" {
			p.problems = p.problems[:max(0, min(len(p.problems), maxProjectProblems-l.complaints))]
			l.complaints += len(p.problems)
		}
		l.problems = append(l.problems, p.problems...)
	}()
	if err := checkName(m.key); err != nil {
		p.fail(m.line, "%v", err)
		return
	}
	index, taken := l.byName[m.key]
	if taken && l.defs[index].Offer == "" {
		first := &l.defs[index]
		if first.Source == f.source.Name && f.dialect == own {
			p.warn(m.line, "already defined in %s, line %d; that one counts", first.File, first.Line)
		}
		shadow(first, Origin{f.source.Name, f.source.File, m.line})
		return
	}
	d, ok := p.parse(&m.value, f.description)
	l.paths = append(l.paths, p.read...)
	if !ok {
		return
	}
	if l.opts.translate {
		f.translate(p, d)
	}
	if why := l.opts.Self.why(d.Name, d.Launch()); why != "" && !l.opts.AllowSelf {
		p.problems = nil
		// A client is expected to have Sallyport among its servers.
		if f.dialect == own {
			p.fail(m.line, "left out, because %s (MCP_BRIDGE_ALLOW_SELF_SERVER=1 allows it)", why)
		}
		return
	}
	if l.opts.Check != nil {
		if err := l.opts.Check(d); err != nil {
			p.fail(m.line, "%v", err)
			return
		}
	}
	if f.source.Project != "" {
		d.Offer = Offered
		if l.opts.Offer != nil {
			d.Offer = l.opts.Offer(f.source.Project, d)
		}
	}
	if !taken {
		l.byName[d.Name] = len(l.defs)
		l.defs = append(l.defs, d)
		return
	}
	if hidden := l.defs[index]; d.Offer == "" { // what is only offered gives way
		l.defs[index] = d
		for _, o := range append(hidden.Shadowed, Origin{hidden.Source, hidden.File, hidden.Line}) {
			shadow(&l.defs[index], o)
		}
		return
	}
	shadow(&l.defs[index], Origin{d.Source, d.File, d.Line})
}

func shadow(d *Definition, o Origin) {
	if len(d.Shadowed) < maxShadowed {
		d.Shadowed = append(d.Shadowed, o)
	}
}

package definitions

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

func (p *entryParser) string(key string, v *node) string {
	switch {
	case v.kind != '"':
		p.fail(v.line, "%s must be a string, not %s", key, v.what())
	case len(v.text) > maxString:
		p.fail(v.line, "%s is longer than %d bytes", key, maxString)
	case strings.ContainsRune(v.text, 0):
		p.fail(v.line, "%s contains a NUL character", key)
	default:
		return v.text
	}
	return ""
}

// scalar also accepts numbers and booleans as they are written: people write
// "PORT": 3000.
func (p *entryParser) scalar(key string, v *node) string {
	if v.kind == '0' || v.kind == 't' || v.kind == 'f' {
		return v.text
	}
	return p.string(key, v)
}

func (p *entryParser) bool(key string, v *node) bool {
	if v.kind != 't' && v.kind != 'f' {
		p.fail(v.line, "%s must be true or false, not %s", key, v.what())
	}
	return v.kind == 't'
}

func (p *entryParser) strings(key string, v *node) []string {
	switch {
	case v.kind == 'n':
		return nil
	case v.kind != '[':
		p.fail(v.line, "%s must be a list of strings, not %s", key, v.what())
		return nil
	case len(v.items) > maxArgs:
		p.fail(v.line, "%s has more than %d elements", key, maxArgs)
		return nil
	}
	out := make([]string, 0, len(v.items))
	for i := range v.items {
		out = append(out, p.scalar(fmt.Sprintf("%s[%d]", key, i), &v.items[i]))
	}
	return out
}

// allow narrows the tools; several lists allow what all of them allow.
func (p *entryParser) allow(key string, v *node) {
	d := &p.def
	if v.kind == '{' && !p.strict {
		p.toolTable(v)
		return
	}
	list := p.strings(key, v)
	switch {
	case v.kind == 'n' || slices.Contains(list, "*") || len(list) == 0 && p.dialect.emptyAllows:
	case d.AllowTools == nil:
		d.AllowTools = append([]string{}, list...)
	default:
		d.AllowTools = slices.DeleteFunc(d.AllowTools, func(name string) bool { return !slices.Contains(list, name) })
	}
}

// toolTable reads the settings of single tools, as Codex and others have them:
// a disabled tool is denied, and the rest is for that client.
func (p *entryParser) toolTable(v *node) {
	for i := range v.members {
		m := &v.members[i]
		if m.value.kind == 'f' || m.value.at("enabled").kind == 'f' || m.value.at("disabled").kind == 't' {
			p.def.DenyTools = append(p.def.DenyTools, m.key)
		}
	}
}

// pairs returns the members of an object whose values are strings.
func (p *entryParser) pairs(key string, v *node, check func(string) bool, what string) map[string]string {
	switch {
	case v.kind == 'n':
		return nil
	case v.kind != '{':
		p.fail(v.line, "%s must be an object, not %s", key, v.what())
		return nil
	case len(v.members) > maxArgs:
		p.fail(v.line, "%s has more than %d members", key, maxArgs)
		return nil
	}
	out := make(map[string]string, len(v.members))
	for i := range v.members {
		m := &v.members[i]
		if !check(m.key) {
			p.fail(m.line, "%s: %q cannot be the name of a %s", key, clip(m.key), what)
			continue
		}
		if m.value.kind == 'n' {
			continue
		}
		out[m.key] = p.expand.variables(p.scalar(key+"."+clip(m.key), &m.value))
	}
	return out
}

func isVariable(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

func (p *entryParser) environment(key string, v *node) map[string]string {
	return p.pairs(key, v, isVariable, "variable")
}

func (p *entryParser) workDir(v *node) string {
	text := p.string("cwd", v)
	if text == "" {
		return ""
	}
	if p.blind { // whether a directory exists must not leak
		return text
	}
	base := filepath.Dir(p.source.File)
	if p.source.Project != "" {
		base = p.source.Project
	}
	dir, exists := workDir(p.expand.path(text), base)
	if !exists {
		p.warn(v.line, "the working directory %s does not exist; the server is started without it", clip(text))
		return ""
	}
	return dir
}

// envFile reads NAME=value lines, as VS Code and Cursor do.
func (p *entryParser) envFile(key string, v *node) {
	text := p.string(key, v)
	if text == "" {
		return
	}
	path := p.expand.path(text)
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.expand.base, path)
	}
	if p.blind {
		p.fail(v.line, "a file of variables cannot be asked for")
		return
	}
	if p.expand.translate {
		p.envFilePath = path
		return
	}
	p.read = append(p.read, path)
	p.expand.uses = append(p.expand.uses, "file:"+path)
	data, _, err := readFrom(path, maxEnvFile, p.room)
	if err != nil {
		p.fail(v.line, "the file of variables %s cannot be read: %v", clip(text), reason(err))
		return
	}
	env := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "export "))
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || strings.HasPrefix(line, "#") || !isName(name) || strings.ContainsRune(value, 0) {
			continue
		}
		if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		env[name] = value
	}
	p.fileEnv = maps.Clone(env)
	for name, value := range p.real.Env {
		env[name] = value
	}
	p.real.Env = env
}

// didYouMean suggests the known key nearest to an unknown one.
func didYouMean(key string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(strings.ToLower(key), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// Near returns at most n of the names, those most like a wrong one.
func Near(name string, names []string, n int) []string {
	wrong := strings.ToLower(clip(name))
	distance := func(s string) int {
		s = strings.ToLower(clip(s))
		d := editDistance(wrong, s)
		if wrong != "" && (strings.Contains(s, wrong) || strings.Contains(wrong, s)) {
			d = min(d, 1)
		}
		return d
	}
	out := slices.Clone(names)
	slices.SortStableFunc(out, func(a, b string) int { return distance(a) - distance(b) })
	return out[:min(n, len(out))]
}

// editDistance counts insertions, deletions and replacements. It is not exact
// beyond short words.
func editDistance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

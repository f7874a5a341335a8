package definitions

import "maps"

// claudeEnvironment returns the environment in which Claude Code expands the
// variables of an entry: the variables of its settings come before those of the
// process. Those of a project's settings are for the project's own entries, which
// are started only once the user trusts them with these values.
func (l *loader) claudeEnvironment(e *expander, project bool) Environment {
	l.readClaudeVariables()
	outer := e.env
	return func(name string) (string, bool) {
		if value, ok := l.claude.project[name]; ok && project {
			if e.given == nil {
				e.given = map[string]string{}
			}
			e.given[name] = value
			return value, true
		}
		if value, ok := l.claude.user[name]; ok {
			return value, true
		}
		return outer(name)
	}
}

// readClaudeVariables reads the variables of Claude Code's settings. A file that
// cannot be read is reported where its rules are read.
func (l *loader) readClaudeVariables() {
	if l.claude.read {
		return
	}
	l.claude.read = true
	user := l.opts.Places
	user.Dir = ""
	own := map[string]bool{}
	for _, path := range user.claudeSettings() {
		own[path] = true
	}
	l.claude.user, l.claude.project = map[string]string{}, map[string]string{}
	for _, path := range l.opts.Places.claudeSettings() {
		root, err := l.opts.Cache.tree(path, claudeRulesFile, l.room(!own[path]))
		if err != nil {
			continue
		}
		if own[path] {
			maps.Copy(l.claude.user, claudeVariables(root))
		} else {
			maps.Copy(l.claude.project, claudeVariables(root))
		}
	}
}

// claudeVariables returns the variables that a file of settings sets.
func claudeVariables(root *node) map[string]string {
	env, out := root.at("env"), map[string]string{}
	for i := range env.members {
		m := &env.members[i]
		if kind := m.value.kind; isVariable(m.key) && len(out) < maxArgs && (kind == '"' || kind == '0' || kind == 't' || kind == 'f') {
			out[m.key] = m.value.text
		}
	}
	return out
}

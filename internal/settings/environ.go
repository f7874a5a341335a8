package settings

import (
	"maps"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	ownPrefix    = "SALLYPORT_"
	legacyPrefix = "MCP_BRIDGE_"
	// fileVariable names the configuration file.
	fileVariable = ownPrefix + "CONFIG"
)

// internal lists variables with our prefix that are not settings: those that
// Sallyport sets for its children, and those of the repository's tests and
// scripts.
var internal = []string{
	"SALLYPORT_DEPTH",                                              // how many Sallyports are above this one
	"SALLYPORT_WORKSPACE", "SALLYPORT_FILES", "SALLYPORT_PACKAGES", // the guest's, outside a sandbox
	"SALLYPORT_BIN", "SALLYPORT_CI_USER", // the executable under test; who tests it
	"SALLYPORT_FAULT_ROUNDS", "SALLYPORT_FAULT_SEED",
	"SALLYPORT_MUST_RUN", "SALLYPORT_NPM_DIR", "SALLYPORT_PYTHON_MCP", "SALLYPORT_SUITE_SECRET",
}

// testPrefix begins the names that tests may invent.
const testPrefix = ownPrefix + "TEST_"

// invented maps names that pages about the first bridge mention, but that never
// existed, to what to say about them.
var invented = map[string]string{
	"MCP_BRIDGE_MEMORY_LIMIT":    "there is no such variable: the memory limit is MCP_BRIDGE_MEMORY, for example 512m",
	"MCP_BRIDGE_PIDS_LIMIT":      "there is no such variable: the limit on processes is MCP_BRIDGE_PIDS, for example 128",
	"MCP_BRIDGE_CPU_QUOTA":       "there is no such variable: the limit on cores is MCP_BRIDGE_CPUS, for example 0.5 where a quota would be 50000",
	"MCP_BRIDGE_SESSION_PERSIST": "there is no such variable, and none is needed: variables, imports and files always stay for the next call. Remove it",
	"MCP_BRIDGE_SECURITY_OPT":    "there is no such variable, and none is needed: code never has capabilities or a way to new privileges. Remove it",
}

// serviceLink matches the variables that Kubernetes and Docker links set in
// every container for a service whose name begins with ours.
var serviceLink = lazyregexp.New(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

var serviceURL = lazyregexp.New(`^(tcp|udp|sctp)://`)

// Ours reports whether a variable's name is one of a setting, or names the
// configuration file.
func Ours(name string) bool {
	upper := strings.ToUpper(name)
	return strings.HasPrefix(upper, ownPrefix) || strings.HasPrefix(upper, legacyPrefix)
}

// ours reports whether a variable must be one that we know.
func ours(name, value string) bool {
	if !Ours(name) {
		return false
	}
	if slices.Contains(internal, name) || strings.HasPrefix(name, testPrefix) || name == fileVariable {
		return false
	}
	return !serviceLink().MatchString(name) && !(strings.HasSuffix(name, "_PORT") && serviceURL().MatchString(value))
}

// readEnvironment reads the variables of all settings. A variable that looks
// like ours but is unknown is an error. An empty variable counts as unset.
func (l *loader) readEnvironment(environ map[string]string) {
	known := map[string]bool{}
	for _, legacy := range []bool{true, false} { // later ones win
		for _, key := range l.keys {
			s := l.settings[key]
			if s.fileOnly {
				continue
			}
			name := s.variable()
			if legacy {
				name = s.legacy
			}
			if name == "" {
				continue
			}
			known[name] = true
			value := environ[name]
			if value == "" {
				continue
			}
			before := s.value.text()
			if err := s.assign(value, place{dir: l.dir, home: l.home}); err != nil {
				l.add(Problem{Name: name, Message: err.Error()})
				continue
			}
			s.came(Origin{Layer: LayerEnvironment, Name: name}, before)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		if known[name] || environ[name] == "" || !ours(name, environ[name]) {
			continue
		}
		message, ok := invented[name]
		if !ok {
			message = l.unknownVariable(name)
		}
		l.add(Problem{Name: clip(name), Message: message})
	}
}

// unknownVariable returns the message for an unknown variable. One of ours that
// resembles a variable of the first bridge is answered with our name for the
// same setting.
func (l *loader) unknownVariable(name string) string {
	const none = "there is no such variable"
	upper := strings.ToUpper(name)
	own := strings.HasPrefix(upper, ownPrefix)
	type candidate struct{ short, name string }
	var family, others []candidate
	for _, key := range l.keys {
		s := l.settings[key]
		if s.fileOnly {
			if s.variable() == upper {
				return none + ": " + key + " is only in the configuration file: 'sallyport config set' writes it"
			}
			continue
		}
		mine := candidate{strings.TrimPrefix(s.variable(), ownPrefix), s.variable()}
		if slices.Contains(s.variables(), upper) {
			return none + "; did you mean " + upper + "?"
		}
		legacy, isLegacy := strings.CutPrefix(s.legacy, legacyPrefix)
		switch {
		case own && isLegacy:
			family = append(family, mine, candidate{legacy, s.variable()})
		case own:
			family = append(family, mine)
		case isLegacy:
			family = append(family, candidate{legacy, s.legacy})
			others = append(others, mine)
		default:
			others = append(others, mine)
		}
	}
	wanted := strings.TrimPrefix(strings.TrimPrefix(upper, ownPrefix), legacyPrefix)
	last := ""
	for _, group := range [][]candidate{family, others} {
		short := make([]string, len(group))
		for i, c := range group {
			short[i] = c.short
		}
		best, near := nearest(wanted, short, "_")
		if len(group) == 0 {
			continue
		}
		found := group[slices.Index(short, best)].name
		if near {
			return none + "; did you mean " + found + "?"
		}
		if last == "" {
			last = found
		}
	}
	section, _, _ := strings.Cut(wanted, "_")
	var siblings []string
	for _, c := range family {
		if strings.HasPrefix(c.name, ownPrefix+section+"_") {
			siblings = append(siblings, c.name)
		}
	}
	if slices.Sort(siblings); len(siblings) > 0 {
		return none + "; there are " + strings.Join(slices.Compact(siblings), ", ")
	}
	return none + "; the nearest is " + last + ", and docs/CONFIGURATION.md lists all"
}

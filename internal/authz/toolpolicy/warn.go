package toolpolicy

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/settings"
)

// Known is a server that the user has.
type Known struct {
	Name   string
	Listed bool // whether its tools are known
	Tools  []string
}

// Warnings returns the rules that match none of these servers, or none of their
// tools, with what may have been meant. Each name and pattern of a rule is looked
// at for itself.
func (v *View) Warnings(servers []Known) []settings.Problem {
	var out []settings.Problem
	names := make([]string, 0, len(servers))
	for _, s := range servers {
		names = append(names, s.Name)
	}
	for _, r := range v.Rules {
		warn := func(format string, args ...any) {
			out = append(out, settings.Problem{File: r.File, Line: r.Line, Message: fmt.Sprintf(format, args...)})
		}
		for _, pattern := range r.Server {
			if !matchesAny(pattern, names) {
				meant, _ := meantBy(pattern, names, "none is defined")
				warn("no server matches %s%s", quote(pattern), meant)
			}
		}
		var tools []string
		about, complete := 0, true
		for _, s := range servers {
			if among(r.Server, s.Name) {
				about++
				complete = complete && s.Listed
				tools = append(tools, s.Tools...)
			}
		}
		if about == 0 {
			continue
		}
		for _, pattern := range r.Tool {
			if matchesAny(pattern, tools) {
				continue
			}
			// A server whose tools are not known may have it, unless it looks like a slip.
			// Short names are near to many others.
			if meant, near := meantBy(pattern, tools, "they have none"); complete || near && len(pattern) > 4 {
				warn("no tool of %s matches %s%s", serversOf(r), quote(pattern), meant)
			}
		}
	}
	return out
}

// serversOf describes the servers that a rule is about.
func serversOf(r *Rule) string {
	switch len(r.Server) {
	case 0:
		return "any server"
	case 1:
		return "server " + quote(r.Server[0])
	}
	return "these servers"
}

// matchesAny reports whether a pattern matches a name. One that matches
// everything need not.
func matchesAny(pattern string, names []string) bool {
	if strings.Trim(pattern, "*") == "" {
		return true
	}
	for _, name := range names {
		if authz.Matches(pattern, name) {
			return true
		}
	}
	return false
}

// meantBy ends a warning with the name that is nearest to a pattern.
func meantBy(pattern string, names []string, none string) (text string, near bool) {
	if len(names) == 0 {
		return ": " + none, false
	}
	best, near := settings.Nearest(strings.ReplaceAll(pattern, "*", ""), names, "\x00")
	if near {
		return "; did you mean " + quote(best) + "?", true
	}
	return "; the nearest is " + quote(best), false
}

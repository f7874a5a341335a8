package settings

import (
	pattern "path"
	"slices"
)

// What servers may ask: the values of servers.may.
const (
	MayElicit = "elicit"
	MaySample = "sample"
	mayNone   = "none"
)

func isMay(s string) bool {
	name, what := splitSharing(s)
	_, badPattern := pattern.Match(name, "")
	return (what == MayElicit || what == MaySample || what == mayNone) && badPattern == nil && (name == "" && what == s || isServerPattern(name))
}

// MayOf returns what a server may ask: MayElicit, MaySample, both, or nothing at
// all.
func (s Servers) MayOf(name string) []string {
	var named, rest []string
	for _, entry := range s.May {
		switch of, what := splitSharing(entry); {
		case of == "":
			rest = append(rest, what)
		case matchesServer(of, name):
			named = append(named, what)
		}
	}
	switch {
	case named == nil && rest == nil && len(s.May) > 0:
		return []string{MayElicit}
	case named == nil:
		named = rest
	}
	if slices.Contains(named, mayNone) {
		return nil
	}
	slices.Sort(named)
	return slices.Compact(named)
}

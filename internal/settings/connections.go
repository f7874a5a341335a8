package settings

import (
	pattern "path"
	"strconv"
	"strings"
)

// mostConnections bounds the connections of one server.
const mostConnections = 64

// splitConnections splits NAME=N, where NAME may contain asterisks.
func splitConnections(s string) (name string, n int, ok bool) {
	at := strings.LastIndexByte(s, '=')
	if at < 0 || !isServerPattern(s[:at]) {
		return "", 0, false
	}
	n, err := strconv.Atoi(s[at+1:])
	_, badPattern := pattern.Match(s[:at], "")
	return s[:at], n, err == nil && badPattern == nil && n >= 1 && n <= mostConnections
}

func isConnections(s string) bool {
	_, _, ok := splitConnections(s)
	return ok
}

// ConnectionsOf returns how many processes or connections a server may have:
// the number of the first entry that matches its name, or 1.
func (s Servers) ConnectionsOf(name string) int {
	for _, entry := range s.Connections {
		if of, n, ok := splitConnections(entry); ok && matchesServer(of, name) {
			return n
		}
	}
	return 1
}

// The ways to share a server: the values of servers.sharing.
const (
	ShareSession = "session"
	ShareClient  = "client"
	ShareAll     = "all"
)

// splitSharing splits NAME=HOW; a HOW alone has no name.
func splitSharing(s string) (name, how string) {
	if at := strings.LastIndexByte(s, '='); at >= 0 {
		return s[:at], s[at+1:]
	}
	return "", s
}

func isSharing(s string) bool {
	name, how := splitSharing(s)
	_, badPattern := pattern.Match(name, "")
	return (how == ShareSession || how == ShareClient || how == ShareAll) && badPattern == nil && (name == "" && how == s || isServerPattern(name))
}

// SharingOf returns how an entry with a name that matches says to share a server,
// or an empty string; and how an entry without a name says to share the rest, or
// ShareAll.
func (s Servers) SharingOf(name string) (named, rest string) {
	for _, entry := range s.Sharing {
		switch of, how := splitSharing(entry); {
		case of == "" && rest == "":
			rest = how
		case of != "" && named == "" && matchesServer(of, name):
			named = how
		}
	}
	if rest == "" {
		rest = ShareAll
	}
	return named, rest
}

// matchesServer reports whether a pattern matches the name of a server, in which
// a slash is an ordinary character.
func matchesServer(of, name string) bool {
	match, _ := pattern.Match(strings.ReplaceAll(of, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return match
}

// isHostPattern reports whether s is the name or address of a host, possibly
// with asterisks.
func isHostPattern(s string) bool {
	_, err := pattern.Match(s, "")
	return err == nil && s != "" && len(s) <= 256 && isPrintable(s) == nil && !strings.ContainsAny(s, "/ ") && !strings.Contains(s, "://")
}

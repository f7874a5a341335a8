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
		if of, n, ok := splitConnections(entry); ok {
			// A slash in a name is an ordinary character.
			if match, _ := pattern.Match(strings.ReplaceAll(of, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00")); match {
				return n
			}
		}
	}
	return 1
}

// isHostPattern reports whether s is the name or address of a host, possibly
// with asterisks.
func isHostPattern(s string) bool {
	_, err := pattern.Match(s, "")
	return err == nil && s != "" && len(s) <= 256 && isPrintable(s) == nil && !strings.ContainsAny(s, "/ ") && !strings.Contains(s, "://")
}

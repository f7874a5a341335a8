package settings

import (
	pattern "path"
	"strconv"
	"strings"
)

// mostConnections bounds the connections of one server.
const mostConnections = 64

// splitConnections takes NAME=N apart, where NAME may have asterisks.
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

// ConnectionsOf says how many processes or connections a server may have: what
// the first entry says that stands for it, and one where none does.
func (s Servers) ConnectionsOf(name string) int {
	for _, entry := range s.Connections {
		if of, n, ok := splitConnections(entry); ok {
			// In names a slash is a character like others.
			if match, _ := pattern.Match(strings.ReplaceAll(of, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00")); match {
				return n
			}
		}
	}
	return 1
}

// isHostPattern: the name or address of a host, with asterisks.
func isHostPattern(s string) bool {
	_, err := pattern.Match(s, "")
	return err == nil && s != "" && len(s) <= 256 && isPrintable(s) == nil && !strings.ContainsAny(s, "/ ") && !strings.Contains(s, "://")
}

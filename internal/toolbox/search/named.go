package search

import "strings"

// spelled returns an identifier as separate words with single spaces, so that
// readTextFile and read_text_file become equal.
func spelled(text string) string {
	var b strings.Builder
	words(text, func(word string) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	})
	return b.String()
}

// names returns the strings in a query that may be a tool's name: the whole
// query, and identifiers of several words in it.
func names(query string) map[string]bool {
	out := map[string]bool{}
	if len(query) <= longestName {
		out[spelled(query)] = true
	}
	for _, part := range strings.Fields(query) {
		if len(part) <= longestName {
			if s := spelled(part); strings.Contains(s, " ") {
				out[s] = true
			}
		}
	}
	delete(out, "")
	return out
}

// longestName bounds the length of a name.
const longestName = 256

// named reports whether a query names a document, alone or after its server.
func (d *entry) named(names map[string]bool) bool {
	return names[d.spelled] || names[d.full]
}

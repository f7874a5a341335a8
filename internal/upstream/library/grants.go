package library

import (
	"net/url"
	"strings"

	"sallyport/internal/upstream/definitions"
)

// Grants reports whether one of the patterns lets code add this server by
// itself.
//
// A pattern is a command line, word by word, or a URL. An asterisk stands for
// letters, digits, dots, dashes and underscores, at least one: never for a
// blank, a slash, a colon or an at-sign, so that it can become neither another
// word nor another package, path or host. As the last word, "..." stands for any
// further words. A definition that says more than a command line or a URL with
// headers is not granted by any pattern: variables can make any program run
// another one.
func Grants(patterns []string, d Definition) bool {
	for _, pattern := range patterns {
		if r := d.Remote(); r != nil {
			if r.TLS == (definitions.TLS{}) && grantsURL(pattern, r.URL) {
				return true
			}
			continue
		}
		l := d.Launch()
		if len(l.Env) == 0 && l.Dir == "" && grantsCommand(strings.Fields(pattern), append([]string{l.Command}, l.Args...)) {
			return true
		}
	}
	return false
}

func grantsCommand(pattern, words []string) bool {
	for i, p := range pattern {
		if p == "..." && i > 0 && i == len(pattern)-1 {
			return true
		}
		if i >= len(words) || !matches(p, words[i]) {
			return false
		}
	}
	return len(pattern) == len(words) && len(words) > 0
}

func grantsURL(pattern, text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User == nil && u.Fragment == "" && u.Scheme != "" && strings.Contains(pattern, "://") && matches(pattern, text)
}

// matches compares one word with its pattern.
func matches(pattern, word string) bool {
	if len(word) > maxRequest {
		return false
	}
	// ends are the places in the word up to which the pattern so far matches.
	ends := make([]bool, len(word)+1)
	ends[0] = true
	for p := range len(pattern) {
		next := make([]bool, len(word)+1)
		for i := range len(word) {
			if pattern[p] != '*' {
				next[i+1] = ends[i] && word[i] == pattern[p]
			} else { // one more of the asterisk's, or its first
				next[i+1] = (ends[i] || next[i]) && plain(word[i])
			}
		}
		ends = next
	}
	return ends[len(word)]
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0
}

package authz

import (
	"net/url"
	"strings"
)

// maxWord bounds a word of a request that is compared with a pattern.
const maxWord = 16 << 10

// requestAllowed reports whether one of the patterns lets code add this server
// by itself.
//
// A pattern is a command line, word by word, or a URL. An asterisk stands for
// letters, digits, dots, dashes and underscores, at least one: never for a
// blank, a slash, a colon or an at-sign, so it cannot become another word,
// package, path or host. As the last word, "..." stands for any further words.
func requestAllowed(patterns []string, r RequestServer) bool {
	for _, pattern := range patterns {
		if r.URL != "" && matchesURL(pattern, r.URL) || len(r.Command) > 0 && matchesCommand(strings.Fields(pattern), r.Command) {
			return true
		}
	}
	return false
}

func matchesCommand(pattern, words []string) bool {
	for i, p := range pattern {
		if p == "..." && i > 0 && i == len(pattern)-1 {
			return true
		}
		if i >= len(words) || !matchesWord(p, words[i]) {
			return false
		}
	}
	return len(pattern) == len(words)
}

func matchesURL(pattern, text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User == nil && u.Fragment == "" && u.Scheme != "" && strings.Contains(pattern, "://") && matchesWord(pattern, text)
}

// matchesWord compares one word with its pattern.
func matchesWord(pattern, word string) bool {
	if len(word) > maxWord {
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
			} else { // the first character of the asterisk, or one more
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

package definitions

import (
	"maps"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/redact"
)

// shortestSecret is the length of the shortest value that Redact looks for:
// replacing every "1" or "on" would garble the output and hide nothing.
const shortestSecret = 4

const mask = "***"

// secrets maps secret values to what is shown instead.
type secrets struct{ shown map[string]string }

func newSecrets() *secrets { return &secrets{shown: make(map[string]string)} }

func (s *secrets) add(shown, value string) {
	value = strings.TrimSpace(value)
	if len(value) < shortestSecret || value == "true" || value == "false" {
		return
	}
	if _, ok := s.shown[value]; !ok {
		s.shown[value] = shown
	}
	// Programs print the lines of a key one by one.
	if strings.Contains(value, "\n") {
		for _, line := range strings.Split(value, "\n") {
			if line = strings.TrimSpace(line); len(line) >= 2*shortestSecret {
				s.shown[line] = shown
			}
		}
	}
}

func (s *secrets) clone() *secrets { return &secrets{shown: maps.Clone(s.shown)} }

// expanded adds the values of expanded variables.
func (s *secrets) expanded(values map[string]string) {
	for name, value := range values {
		if !slices.Contains(everyday, name) {
			s.add("${"+name+"}", value)
		}
	}
}

// plainHeaders lists headers that hold no secrets.
var plainHeaders = []string{"accept", "accept-encoding", "accept-language", "cache-control", "content-type", "user-agent"}

// header adds a header's value, and the part after the name of its scheme.
func (s *secrets) header(name, value string) {
	if slices.Contains(plainHeaders, strings.ToLower(name)) {
		return
	}
	s.add(mask, value)
	if scheme, rest, ok := strings.Cut(value, " "); ok && len(scheme) < 12 {
		s.add(mask, rest)
	}
}

// redactor hides secrets in text.
type redactor struct {
	*strings.Replacer                    // those that are written as they are
	encoded           func() *redact.Set // the same, however they are encoded
	values            []string           // the longest first
}

// redactor prefers the longest of several values with the same beginning.
func (s *secrets) redactor() *redactor {
	values := make([]string, 0, len(s.shown))
	for value := range s.shown {
		values = append(values, value)
	}
	sort.Slice(values, func(i, j int) bool {
		if len(values[i]) != len(values[j]) {
			return len(values[i]) > len(values[j])
		}
		return values[i] < values[j]
	})
	pairs := make([]string, 0, 2*len(values))
	for _, value := range values {
		pairs = append(pairs, value, s.shown[value])
	}
	return &redactor{strings.NewReplacer(pairs...), sync.OnceValue(func() *redact.Set {
		var set redact.Set
		set.Add(values...)
		return &set
	}), values}
}

var (
	// secretName matches option and variable names that hold secrets.
	secretName = lazyregexp.New(`(?i)(^|[-_])(token|secret|passw(or)?d|passphrase|pwd|pat|bearer|auth(orization)?|credentials?|api[-_]?key|access[-_]?key|private[-_]?key|key)$`)
	// assigned matches --name=value, NAME=value and a header "Name: value".
	assigned = lazyregexp.New(`^(-{0,2}[A-Za-z][A-Za-z0-9_-]*)(=|:\s*)((?:(?i:bearer|basic|token)\s+)?)(.+)$`)
	variable = lazyregexp.New(`^\$\{[^}]*\}$`)
	// knownToken matches the prefixes that services give their tokens.
	knownToken = lazyregexp.New(`^(gh[pousr]_|github_pat_|glpat-|sk-|xox[abeprs]-|AKIA|ya29\.|npm_|hf_|rpa_)[A-Za-z0-9_-]{8,}`)
)

// everyday lists variables that are expanded often and hold no secrets.
var everyday = []string{"HOME", "USER", "LOGNAME", "USERNAME", "USERPROFILE", "PATH", "PWD", "SHELL", "TERM", "LANG", "TMPDIR", "TEMP", "TMP", "HOSTNAME"}

// maskArgs returns args with what looks like a secret masked, and adds what it
// masked to the secrets.
func maskArgs(args []string, found *secrets) []string {
	out := make([]string, len(args))
	next := false // the previous argument announced a secret
	for i, arg := range args {
		out[i] = arg
		announced := next
		next = false
		switch {
		case announced && !strings.HasPrefix(arg, "-"):
			out[i] = maskValue(arg, found)
			continue
		case strings.HasPrefix(arg, "-") && secretName().MatchString(strings.TrimLeft(arg, "-")):
			next = true
			continue
		}
		if m := assigned().FindStringSubmatch(arg); m != nil && secretName().MatchString(strings.TrimLeft(m[1], "-")) {
			out[i] = m[1] + m[2] + m[3] + maskValue(m[4], found)
			continue
		}
		switch {
		case strings.Contains(arg, "://"):
			out[i] = maskURL(arg, found)
		case knownToken().MatchString(arg):
			out[i] = maskValue(arg, found)
		}
	}
	return out
}

func maskValue(value string, found *secrets) string {
	if variable().MatchString(value) {
		return value // the name of a variable is not a secret
	}
	found.add(mask, value)
	return mask
}

var (
	userinfo = lazyregexp.New(`://([^/?#@:\s]*):([^/?#\s]+)@`)
	tokenAt  = lazyregexp.New(`://([^/?#@:\s]{16,})@`)
)

var (
	// webPath matches the host and the path of each web address in a string.
	webPath = lazyregexp.New(`(https?://[^/?#\s"'<>]*/)([^?#\s"'<>]+)`)
	// plainSegment matches a part of a path that consists of words, with a few
	// digits behind them, versions and variables.
	plainSegment = lazyregexp.New(`^` + word + `([-_.~@+:]` + word + `){0,5}$`)
)

const word = `(([A-Z]?[a-z]{1,24}){1,3}[0-9]{0,3}|[A-Z]{1,5}[0-9]{0,3}|[0-9]{1,4}|\$\{[^{}]*\})?`

// maskPaths masks the parts of the paths of web addresses that are no plain
// words: some services have a key there.
func maskPaths(arg string, found *secrets) string {
	return webPath().ReplaceAllStringFunc(arg, func(s string) string {
		m := webPath().FindStringSubmatch(s)
		parts := strings.Split(m[2], "/")
		for i, part := range parts {
			if plainSegment().MatchString(part) && !knownToken().MatchString(part) {
				continue
			}
			if plain, err := url.PathUnescape(part); err == nil && plain != part {
				found.add(mask, plain)
			}
			parts[i] = maskValue(part, found)
		}
		return m[1] + strings.Join(parts, "/")
	})
}

// maskURL masks the password of a URL, the values of query parameters whose
// names sound secret, and the parts of a path that look like a key.
func maskURL(arg string, found *secrets) string {
	arg = userinfo().ReplaceAllStringFunc(arg, func(s string) string {
		m := userinfo().FindStringSubmatch(s)
		if plain, err := url.PathUnescape(m[2]); err == nil && plain != m[2] {
			found.add(mask, plain)
		}
		return "://" + m[1] + ":" + maskValue(m[2], found) + "@"
	})
	arg = tokenAt().ReplaceAllStringFunc(arg, func(s string) string {
		return "://" + maskValue(s[len("://"):len(s)-1], found) + "@"
	})
	arg = maskPaths(arg, found)
	before, query, ok := strings.Cut(arg, "?")
	if !ok {
		return arg
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		if name, value, ok := strings.Cut(pair, "="); ok && secretName().MatchString(name) {
			pairs[i] = name + "=" + maskValue(value, found)
		}
	}
	return before + "?" + strings.Join(pairs, "&")
}

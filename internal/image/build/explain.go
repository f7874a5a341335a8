package build

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// pipEnviron returns the environment of pip. Where only uv's index is set, pip uses
// that one.
func pipEnviron(environ []string) []string {
	out := append(slices.Clone(environ), "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1", "PIP_USER=0", "PIP_REQUIRE_VIRTUALENV=0")
	get := func(names ...string) string {
		for _, name := range names {
			for _, kv := range slices.Backward(environ) {
				if value, ok := strings.CutPrefix(kv, name+"="); ok && value != "" {
					return value
				}
			}
		}
		return ""
	}
	// pip's own five tries of an index that does not answer take minutes.
	if get("PIP_RETRIES") == "" {
		out = append(out, "PIP_RETRIES=2")
	}
	if get("PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT") == "" {
		out = append(out, "PIP_DEFAULT_TIMEOUT=15")
	}
	if get("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX") != "" {
		return out
	}
	var extra []string
	for _, index := range strings.Fields(get("UV_INDEX") + " " + get("UV_EXTRA_INDEX_URL")) {
		if name, address, ok := strings.Cut(index, "="); ok && !strings.Contains(name, ":") {
			index = address // NAME=URL
		}
		extra = append(extra, index)
	}
	for _, v := range []struct{ name, value string }{
		{"PIP_INDEX_URL", get("UV_DEFAULT_INDEX", "UV_INDEX_URL")},
		{"PIP_EXTRA_INDEX_URL", strings.Join(extra, " ")},
		{"PIP_FIND_LINKS", strings.ReplaceAll(get("UV_FIND_LINKS"), ",", " ")},
	} {
		if name, address, ok := strings.Cut(v.value, "="); ok && !strings.Contains(name, ":") {
			v.value = address
		}
		if v.value != "" {
			out = append(out, v.name+"="+v.value)
		}
	}
	if slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(get("UV_OFFLINE"))) {
		out = append(out, "PIP_NO_INDEX=1")
	}
	return out
}

var (
	credentials = lazyregexp.New(`://[^/\s'"]*@`)
	queries     = lazyregexp.New(`(://[^\s'"?#]*\?)[^\s'"#]+`)
	missingName = lazyregexp.New(`No matching distribution found for ([^\s(]+)`)
	damaged     = lazyregexp.New(`Wheel '([A-Za-z0-9._-]+)' located at .* is invalid`)
	versions    = lazyregexp.New(`\(from versions: ([^)]*)\)`)
)

// masked removes the credentials from addresses, and queries, which may hold some.
func masked(text string) string {
	return queries().ReplaceAllString(credentials().ReplaceAllString(text, "://****@"), "$1****")
}

// explain returns what pip's failure means and what can be done. said is the end of
// its output.
func (t *Target) explain(said, platform string, err error) error {
	where := "Python " + t.python() + " on " + platform
	other := "another Python"
	if t.Libc == wasi {
		where = "Python " + t.python() + " in WebAssembly, where only packages without compiled code run"
		other = "another engine (gvisor, podman or docker)"
	}
	hint := ""
	found := missingName().FindStringSubmatch(said)
	switch {
	case strings.HasPrefix(err.Error(), "signal: "):
		hint = "pip was ended by a " + err.Error() + ": try again"
	case strings.Contains(said, "DO NOT MATCH THE HASHES"):
		hint = "a downloaded wheel has another hash than the lock or the index says: it was altered, or replaced; nothing was installed. If you trust the index, try or lock again"
	case strings.Contains(said, "NewConnectionError") || strings.Contains(said, "Max retries exceeded") || strings.Contains(said, "Read timed out") || strings.Contains(said, "ConnectTimeoutError") || strings.Contains(said, "NameResolutionError"):
		hint = noAnswer
	case strings.Contains(said, "is not a trusted or secure host"):
		hint = "pip ignores an index without TLS: use its https address, or trust it (PIP_TRUSTED_HOST)"
	case strings.Contains(said, "No space left on device"):
		hint = "the disk is full: free some space and try again"
	case strings.Contains(said, "MemoryError"):
		hint = "what a package or the index says takes more memory than pip may use: choose another version of the package"
	case damaged().MatchString(said):
		hint = damaged().FindStringSubmatch(said)[1] + " is damaged in the index: choose another version"
	case strings.Contains(said, "ResolutionImpossible") || strings.Contains(said, "conflicting dependencies"):
		hint = "the requirements conflict: change or remove one of those that pip names"
		if t.Libc == wasi {
			hint = fmt.Sprintf("a package that pip names last has no wheel for %s, or %s. With %s it can be installed", where, hint, other)
		}
	case found != nil:
		list := versions().FindStringSubmatch(said)
		switch {
		case t.Libc == wasi && (list == nil || list[1] == "none"):
			hint = fmt.Sprintf("%s has no wheel for %s: choose %s, which takes its other wheels; or check its name and the index (pip config list)", found[1], where, other)
		case list == nil || list[1] == "none":
			hint = fmt.Sprintf("%s has no wheel for %s, does not exist, or is not for you to read: check its name and the index (pip config list), or choose %s", found[1], where, other)
		default:
			hint = fmt.Sprintf("%s has no wheel for %s in that version: choose one that pip lists, or %s", found[1], where, other)
		}
	}
	return &PipError{where, hint, said, err}
}

const noAnswer = "the package index does not answer: check the network, and the index that pip uses (pip config list)"

// A PipError reports that pip failed.
type PipError struct {
	where, hint, said string
	err               error
}

func (e *PipError) Error() string {
	if e.hint != "" {
		return fmt.Sprintf("pip found no wheels: %s (%v):\n%s", e.hint, e.err, e.said)
	}
	return fmt.Sprintf("pip found no wheels for %s (%v):\n%s", e.where, e.err, e.said)
}

// Unreachable reports whether the index did not answer.
func (e *PipError) Unreachable() bool { return e.hint == noAnswer }

// Unwrap returns how pip ended.
func (e *PipError) Unwrap() error { return e.err }

// Brief returns the error without what pip said about this machine: its addresses and
// paths.
func (e *PipError) Brief() string {
	text := "no wheels were found"
	if e.hint != "" {
		text += ": " + e.hint
	} else {
		text += " for " + e.where + " (the log of Sallyport has what pip said)"
	}
	conflict := false
	for line := range strings.Lines(e.said) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "No matching distribution found") || strings.Contains(line, "(from versions: none)") {
			continue // the hint says so
		}
		conflict = line != "" && (conflict || strings.HasPrefix(line, "The conflict is caused by"))
		if !conflict && !strings.HasPrefix(line, "ERROR: ") || strings.Contains(line, "/") || len(line) > 500 || line == "ERROR: Exception:" {
			continue
		}
		text += "\n" + strings.TrimPrefix(line, "ERROR: ")
	}
	return text
}

// lineWriter passes on whole lines, without credentials, and tells of some.
type lineWriter struct {
	w    io.Writer
	tell func(string)
	part []byte
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		n := bytes.IndexByte(l.part, '\n') + 1
		if n == 0 && len(l.part) > 64<<10 {
			n = len(l.part)
		}
		if n == 0 {
			return len(p), nil
		}
		if err := l.line(string(l.part[:n])); err != nil {
			return 0, err
		}
		l.part = l.part[n:]
	}
}

func (l *lineWriter) line(text string) error {
	text = masked(text)
	first, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if l.tell != nil && rest != "" && (first == "Collecting" || first == "Downloading" || first == "WARNING:" && strings.Contains(rest, "Retrying")) {
		if first == "WARNING:" {
			rest = "waiting for the package index, which does not answer"
		} else {
			rest, _, _ = strings.Cut(rest, " (")
			rest = strings.ToLower(first) + " " + rest[strings.LastIndexByte(rest, '/')+1:]
		}
		l.tell(rest)
	}
	_, err := io.WriteString(l.w, text)
	return err
}

func (l *lineWriter) end() {
	if len(l.part) > 0 {
		_ = l.line(string(l.part))
	}
}

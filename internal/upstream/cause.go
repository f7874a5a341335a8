package upstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Cause says why a server failed, as far as sandboxed code may read it, or is
// empty: what this program knows, in its own words, and one line of what the server
// said itself, quoted. Secrets of the definition are hidden in that already; what
// looks like a path, an address or a credential is left out.
func Cause(err error) string {
	var parts []string
	if known := known(err); known != "" {
		parts = append(parts, known)
	}
	var e *Error
	if errors.As(err, &e) {
		if e.Exit != "" {
			parts = append(parts, veiled(e.Exit))
		}
		if line := veiled(telling(e.LastText)); strings.Trim(line, "… ") != "" {
			parts = append(parts, fmt.Sprintf("it wrote last: %q", line))
		}
	}
	return strings.Join(parts, "; ")
}

// known is the part of Cause in this program's words.
func known(err error) string {
	var (
		status   *remote.StatusError
		late     timeoutError
		name     *net.DNSError
		missing  *child.NotFoundError
		path     *fs.PathError
		issuer   x509.UnknownAuthorityError
		host     x509.HostnameError
		invalid  x509.CertificateInvalidError
		answered *jsonrpc.Error
		asks     *oauth.SignInError
	)
	switch {
	case errors.As(err, &asks):
		return asks.Remedy()
	case errors.As(err, &status):
		text := fmt.Sprintf("HTTP status %d %s", status.Status, http.StatusText(status.Status))
		if said := veiled(telling(status.Text)); strings.Trim(said, "… ") != "" {
			text += fmt.Sprintf("; it said: %q", said)
		}
		return strings.TrimSpace(text)
	case errors.As(err, &late):
		return late.Error()
	case errors.As(err, &missing):
		return "its program was not found"
	case errors.As(err, &path) && errors.Is(err, ErrStart):
		return "a file or directory that it needs: " + path.Err.Error()
	case errors.As(err, &issuer):
		return "its certificate is signed by an authority that is not trusted"
	case errors.As(err, &host):
		return "its certificate is for another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &name):
		return "its host name was not found"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the connection was refused"
	case errors.As(err, &answered) && errors.Is(err, ErrStart):
		return fmt.Sprintf("it answered: %q", veiled(telling(answered.Message)))
	case errors.Is(err, jsonrpc.ErrTooLarge), errors.Is(err, jsonrpc.ErrNotJSON), errors.Is(err, jsonrpc.ErrMalformed), errors.Is(err, ErrBadAnswer):
		var e *Error
		if errors.As(err, &e) && e.Err != nil {
			return veiled(e.Err.Error())
		}
	}
	return ""
}

// troubled matches a line that says what is wrong.
var troubled = lazyregexp.New(`(?i)error|exception|fatal|panic|fail|denied|refused|cannot|could not|unable|no such|not found|missing|invalid|in use|killed|\bE[A-Z]{4,}\b`)

// telling returns the last line that says what is wrong, or the last one: runtimes
// write the error first and then where it happened.
func telling(text string) string {
	lines := strings.Split(text, "\n")
	last := ""
	for i := len(lines) - 1; i >= 0; i-- {
		line := strings.TrimSpace(lines[i])
		if line == "" {
			continue
		}
		if last == "" {
			last = line
		}
		if line == strings.TrimRight(lines[i], " \t\r") && troubled().MatchString(line) {
			return line
		}
	}
	return last
}

// What veiled leaves out: addresses, paths, values of credentials, numbers of hosts.
var private = lazyregexp.New(`(?i)[a-z][a-z0-9+.-]*://\S+` +
	`|(?:token|secret|passw(?:or)?d|pwd|(?:api|access|private|auth)[-_]?key|authorization|credentials?)["']?\s*[=:]\s*\S+(?:\s+\S{12,})?|bearer\s+\S+` +
	`|\S+@\S+` +
	`|\b\d{1,3}(?:\.\d{1,3}){3}\b`)

// pathlike matches a path behind what may come before one.
var pathlike = lazyregexp.New(`(^|[\s"'` + "`" + `(=:,\[<])(?:(?:[A-Za-z]:|~|\.\.?)?[/\\][^\s"'` + "`" + `)\],;:>]+)`)

// opaque matches a long word with digits in it, as keys are.
var opaque = lazyregexp.New(`[A-Za-z0-9_+/=-]{16,}`)

// maxCause bounds what veiled returns, in bytes.
const maxCause = 300

// veiled returns a message on one line, without what may be private.
func veiled(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text[:min(len(text), 8*maxCause)], "")), " ")
	text = private().ReplaceAllString(text, "…")
	text = pathlike().ReplaceAllString(text, "$1…")
	text = opaque().ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && strings.ContainsFunc(word, func(r rune) bool { return r >= 'A' }) {
			return "…"
		}
		return word
	})
	if len(text) > maxCause {
		cut := maxCause
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

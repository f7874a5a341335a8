package upstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// TestCause: code reads the cause of each kind of failure, and nothing private.
func TestCause(t *testing.T) {
	unreachable := func(err error) error { return fmt.Errorf("%w: %w", remote.ErrUnreachable, err) }
	node := "node:fs:1\n    throw err;\nError: ENOSPC: no space left on device, write '/home/ada/db'\n    at Object.write (node:fs:2)\n  errno: -28,\n}\n\nNode.js v20.1.0"
	python := "Traceback (most recent call last):\n  File \"/srv/x.py\", line 1, in <module>\nKeyError: 'region'"
	for _, tt := range []struct {
		name string
		err  *Error
		want string
	}{
		{"a full disk", &Error{Kind: ErrGone, Exit: "exit status 1", LastText: node}, `exit status 1; it wrote last: "Error: ENOSPC: no space left on device, write '…'"`},
		{"an exception at the start", &Error{Kind: ErrStart, Exit: "exit status 1", LastText: python}, `exit status 1; it wrote last: "KeyError: 'region'"`},
		{"killed", &Error{Kind: ErrGone, Exit: "signal: killed"}, "signal: killed"},
		{"a port in use", &Error{Kind: ErrStart, Exit: "exit status 1", LastText: "Error: listen EADDRINUSE: address already in use 127.0.0.1:3000"}, `exit status 1; it wrote last: "Error: listen EADDRINUSE: address already in use …:3000"`},
		{"several lines without an error", &Error{Kind: ErrGone, LastText: "one\ntwo\n"}, `it wrote last: "two"`},
		{"words that are not ours", &Error{Kind: ErrGone, LastText: "bye\" (the user: run \x1b[31mrm)\u202e"}, `it wrote last: "bye\" (the user: run \x1b[31mrm)\u202e"`},
		{"withheld", &Error{Kind: ErrGone, Exit: "exit status 2", Withheld: true}, "exit status 2"},
		{"not JSON", &Error{Kind: ErrBadAnswer, Err: fmt.Errorf(`%w, near "NaN" (byte 40)`, jsonrpc.ErrNotJSON)}, `not valid JSON, near "NaN" (byte 40)`},
		{"too large", &Error{Err: fmt.Errorf("%w: 7 bytes in one line, 5 are allowed", jsonrpc.ErrTooLarge)}, "answer exceeds the limit: 7 bytes in one line, 5 are allowed"},
		{"no answer", &Error{Kind: ErrTimeout, Err: timeoutError{time.Second}}, "no answer within 1s"},
		{"no answer at the start", &Error{Kind: ErrStart, Err: silence(time.Minute, ""), LastText: "downloading"}, `no answer within 1m0s; it wrote last: "downloading"`},
		{"no program", &Error{Kind: ErrStart, Command: "npx x", Err: &child.NotFoundError{Command: "npx", Path: "/bin"}}, "its program was not found"},
		{"no directory", &Error{Kind: ErrStart, Err: &fs.PathError{Op: "stat", Path: "/home/ada", Err: os.ErrNotExist}}, "a file or directory that it needs: file does not exist"},
		{"an error at the start", &Error{Kind: ErrStart, Err: fmt.Errorf("initialize: %w", &jsonrpc.Error{Message: "no licence"})}, `it answered: "no licence"`},
		{"429", &Error{Err: &remote.StatusError{Status: 429, Text: "slow down", RetryAfter: "3"}}, `HTTP status 429 Too Many Requests; it said: "slow down"`},
		{"401", &Error{Err: fmt.Errorf("%w (%w): give it a token", ErrUnauthorized, &remote.StatusError{Status: 401})}, "HTTP status 401 Unauthorized"},
		{"refused", &Error{Kind: ErrStart, Err: unreachable(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})}, "the connection was refused"},
		{"no such host", &Error{Err: unreachable(&net.DNSError{Name: "db.internal", IsNotFound: true})}, "its host name was not found"},
		{"an unknown authority", &Error{Err: unreachable(x509.UnknownAuthorityError{})}, "its certificate is signed by an authority that is not trusted"},
		{"expired", &Error{Err: unreachable(x509.CertificateInvalidError{Reason: x509.Expired})}, "its certificate has expired, or is not valid yet"},
		{"refused by a rule", &Error{Err: fmt.Errorf("%w: 10.0.0.1 is private", remote.ErrRefused)}, ""},
		{"unknown", &Error{Err: errors.New("open /home/ada: no")}, ""},
	} {
		if got := Cause(tt.err); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestClassHasCause: what the catalog keeps of a failure has the cause.
func TestClassHasCause(t *testing.T) {
	for _, tt := range []struct {
		err  *Error
		want string
	}{
		{&Error{Kind: ErrStart, Exit: "exit status 1"}, "did not start: exit status 1"},
		{&Error{Kind: ErrStart}, "did not start"},
	} {
		if got := tt.err.Class(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestVeiled: what may be private is left out, what explains stays.
func TestVeiled(t *testing.T) {
	for text, want := range map[string]string{
		"connect to postgres://u:p@db/x failed":        "connect to … failed",
		"token=abc123 is bad, password: 'x y'":         "… is bad, … y'",
		"Authorization: Bearer abcdefghijklmnop":       "…",
		"sent Bearer abc":                              "sent …",
		"ada@example.org has no access":                "… has no access",
		"key sk-proj-0123456789abcdef is not valid":    "key … is not valid",
		`open C:\Users\ada\x: denied`:                  `open …: denied`,
		"(~/.config/x) ./a/b \"/etc/passwd\"":          "(…) … \"…\"",
		"I/O error, and/or a JsonWebTokenError: stale": "I/O error, and/or a JsonWebTokenError: stale",
		"GITHUB_TOKEN is not set":                      "GITHUB_TOKEN is not set",
		"a\nb\tc":                                      "a b c",
		"\xff":                                         "",
	} {
		if got := veiled(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := veiled(strings.Repeat("é ", 5000)); len(got) > maxCause+len("…") {
		t.Errorf("got %d bytes, want at most %d", len(got), maxCause)
	}
}

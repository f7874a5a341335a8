package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Kinds of failure. An error answer of the server is a *jsonrpc.Error; the
// kinds of package jsonrpc describe invalid answers.
var (
	// ErrUnreachable means that no connection was made, so that nothing was sent.
	ErrUnreachable = errors.New("the server cannot be reached")
	// ErrRefused means that our own rules forbid the connection.
	ErrRefused = errors.New("refused")
	// ErrLost means that the answer did not arrive; whether the request had an
	// effect is unknown.
	ErrLost = errors.New("the connection was lost before the answer came")
	// ErrCredentials means that nothing was sent, because the credentials for it
	// could not be obtained.
	ErrCredentials = errors.New("the server wants authorization")
)

// StatusError is an HTTP status without a JSON-RPC message.
type StatusError struct {
	Status int
	// Text is the beginning of the body, if that is plain text.
	Text string
	// RetryAfter is the header Retry-After.
	RetryAfter string
	// Header has the headers about authorization.
	Header http.Header
	// Reason is what the credentials say about it, or nil.
	Reason error
}

// Unwrap returns Reason.
func (e *StatusError) Unwrap() error { return e.Reason }

func (e *StatusError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP status %d", e.Status)
	if name := http.StatusText(e.Status); name != "" {
		b.WriteString(" " + name)
	}
	if e.RetryAfter != "" {
		fmt.Fprintf(&b, " (to be tried again after %s)", e.RetryAfter)
	}
	if e.Text != "" {
		fmt.Fprintf(&b, ": %s", e.Text)
	}
	return b.String()
}

// Unauthorized reports whether the server did not accept our credentials.
func (e *StatusError) Unauthorized() bool {
	return unauthorized(e.Status)
}

// clean makes an error of net/http fit to be shown: without the URL, whose
// query may be a secret, and with the kind that callers look for. sent reports
// whether the request may have reached the server.
func clean(ctx context.Context, err error, sent bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var withURL *url.Error
	for errors.As(err, &withURL) {
		err = withURL.Err
	}
	var (
		refused   *refusal
		operation *net.OpError
		unknown   x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		plain     tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %w (to trust a certificate of your own, name it as caFile in the definition)", ErrUnreachable, unknown)
	case errors.As(err, &hostname):
		return fmt.Errorf("%w: %w", ErrUnreachable, hostname)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: %w", ErrUnreachable, invalid)
	case errors.As(err, &verify):
		return fmt.Errorf("%w: %w", ErrUnreachable, verify)
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: it does not speak TLS (is it http instead of https?)", ErrUnreachable)
	case errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect"):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	case sent && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return fmt.Errorf("%w: it closed the connection", ErrLost)
	case sent:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

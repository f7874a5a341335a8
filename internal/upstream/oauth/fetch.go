package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// errUnavailable means that a server could not answer now.
var errUnavailable = errors.New("unavailable")

// hostile returns an ErrHostile with its reason.
func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrHostile, fmt.Sprintf(format, args...))
}

// fetch reads a JSON document. found is false if there is none: many servers answer
// requests for unknown paths with a page, or a page to sign in.
func fetch(ctx context.Context, client *http.Client, address string, into any) (found bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, hostile("its URL cannot be read")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "sallyport")
	response, err := client.Do(r)
	if err != nil {
		return false, failure(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	switch {
	case response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests:
		return false, fmt.Errorf("%w: HTTP status %d", errUnavailable, response.StatusCode)
	case response.StatusCode != http.StatusOK:
		return false, nil
	}
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return false, nil
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return false, failure(ctx, err)
	case len(data) > maxAnswer:
		return false, hostile("it is larger than %d bytes", maxAnswer)
	case json.Unmarshal(data, into) != nil: // the error may contain some of it
		return false, hostile("it is not valid JSON, or has values of other types than it must have")
	}
	return true, nil
}

// ruleError is the error of a client that has a rule against a request.
type ruleError interface{ Rule() string }

// failure returns an error of a request in a form that can be shown: without the
// URL, and as an ErrHostile if the client has a rule against the request.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var withURL *url.Error
	for errors.As(err, &withURL) {
		err = withURL.Err
	}
	var rule ruleError
	var timeout net.Error
	switch {
	case errors.As(err, &rule):
		return hostile("%s", printable(rule.Rule()))
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("it took too long")
	}
	return errors.New(printable(strings.TrimSpace(err.Error())))
}

package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Credentials authorize the requests to one server. Its methods are called by
// several goroutines at once.
type Credentials interface {
	// Authorize adds the credentials to a request. used identifies it, for Refused. An
	// error means that the request must not be sent.
	Authorize(r *http.Request) (used string, err error)
	// Refused receives an answer with 401 or 403. It returns nil if the request is
	// worth another try, and else what the user can do.
	Refused(ctx context.Context, used string, status int, header http.Header) error
	// Hide returns what the server sent without the credentials, which it may repeat.
	// It keeps the bytes that it gets if they have none.
	Hide(result []byte) []byte
}

// maxAttempts bounds how often a request is sent that the server refuses for its
// credentials.
const maxAttempts = 4

// send makes an HTTP request, and makes it again with other credentials if there
// are any that the server may accept. Its error is fit to be shown.
func (p *peer) send(ctx context.Context, method string, to *url.URL, body []byte, accept string, more http.Header) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, used, err := p.sendOnce(ctx, method, to, body, accept, more)
		if err != nil || p.credentials == nil || !unauthorized(response.StatusCode) {
			return response, err
		}
		reason := p.credentials.Refused(ctx, used, response.StatusCode, response.Header)
		if reason == nil && attempt < maxAttempts {
			_, _ = io.CopyN(io.Discard, response.Body, maxErrorBody)
			_ = response.Body.Close()
			continue
		}
		err = p.statusError(response)
		_ = response.Body.Close()
		if status, ok := err.(*StatusError); ok {
			status.Reason = reason
		}
		return nil, err
	}
}

// sendOnce makes one HTTP request.
func (p *peer) sendOnce(ctx context.Context, method string, to *url.URL, body []byte, accept string, more http.Header) (response *http.Response, used string, err error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, to.String(), reader)
	if err != nil {
		return nil, "", refuse("the URL cannot be used")
	}
	for name, values := range p.headers {
		r.Header[name] = values
	}
	for name, values := range more {
		r.Header[name] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	if v, _ := p.version.Load().(string); v != "" && r.Header.Get("Mcp-Protocol-Version") == "" {
		r.Header.Set("Mcp-Protocol-Version", v)
	}
	if p.credentials != nil {
		if used, err = p.credentials.Authorize(r); err != nil {
			return nil, "", fmt.Errorf("%w: %w", ErrCredentials, err)
		}
	}
	response, err = p.client.Do(r)
	if err != nil {
		if response != nil {
			_ = response.Body.Close()
		}
		return nil, "", clean(ctx, err, true)
	}
	return response, used, nil
}

func unauthorized(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

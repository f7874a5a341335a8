package oauth

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"
)

// web answers requests from memory, by URL. What is not in it is not found.
type web struct {
	pages map[string]webPage
	asked []string // "GET URL"
	sent  []string // bodies
}

// webPage is an answer; the zero status is 200, the zero kind application/json.
type webPage struct {
	status int
	kind   string
	body   string
	stream io.Reader // in place of body
	header http.Header
	err    error
}

func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked = append(w.asked, r.Method+" "+r.URL.String())
	if r.Body != nil {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		w.sent = append(w.sent, string(data))
	}
	p, ok := w.pages[r.URL.String()]
	if !ok {
		p.status = http.StatusNotFound
	}
	if p.err != nil {
		return nil, p.err
	}
	if p.status == 0 {
		p.status = http.StatusOK
	}
	if p.kind == "" {
		p.kind = "application/json; charset=utf-8"
	}
	if p.stream == nil {
		p.stream = strings.NewReader(p.body)
	}
	header := http.Header{"Content-Type": {p.kind}}
	for name, values := range p.header {
		header[name] = values
	}
	return &http.Response{StatusCode: p.status, Header: header, Body: webBody{r.Context(), p.stream}, Request: r}, nil
}

// webBody is a body that ends with its request.
type webBody struct {
	ctx context.Context
	io.Reader
}

func (b webBody) Read(p []byte) (int, error) {
	if s, ok := b.Reader.(stuck); ok {
		return s.read(b.ctx, p)
	}
	return b.Reader.Read(p)
}

func (webBody) Close() error { return nil }

// stuck is a body of one byte, after which nothing comes until the request ends.
type stuck struct{ io.Reader }

func (stuck) read(ctx context.Context, p []byte) (int, error) {
	<-ctx.Done()
	p[0] = ' '
	return 1, ctx.Err()
}

// spaces is a document that says nothing for long.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// rule is the error of a client that has a rule against a request.
type rule string

func (r rule) Error() string { return "refused: " + string(r) }
func (r rule) Rule() string  { return string(r) }

// checkError reports an error that is not as wanted, or that cannot be shown.
func checkError(t *testing.T, name string, err error, kind error, want string) {
	t.Helper()
	switch {
	case want == "" && err == nil:
	case err == nil || want == "" || !strings.Contains(err.Error(), want):
		t.Errorf("%s: got %v, want %q", name, err, want)
	case kind != nil && !errors.Is(err, kind):
		t.Errorf("%s: got %v, want one that is %v", name, err, kind)
	case kind == nil && errors.Is(err, ErrHostile):
		t.Errorf("%s: got %v, want one that is not %v", name, err, ErrHostile)
	default:
		checkText(t, name, err.Error())
	}
}

// checkText reports a string that must not be shown.
func checkText(t *testing.T, name, s string) {
	t.Helper()
	if len(s) > 2000 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(s, "s3cret") {
		t.Errorf("%s: got %q (%d bytes), want a short printable string without secrets", name, s, len(s))
	}
}

// Package rest is a client of RunPod's REST API, version 2: templates,
// endpoints and their workers. The key travels in one header and is in no
// error.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Object is a template or an endpoint as the API tells it. What this program
// does not know of it stays in it.
type Object map[string]any

// ID and Name are of every object.
func (o Object) ID() string   { return o.Text("id") }
func (o Object) Name() string { return o.Text("name") }

// Text is a field that is a string; "" where it is not.
func (o Object) Text(field string) string {
	s, _ := o[field].(string)
	return s
}

// Env is the object's environment.
func (o Object) Env() map[string]string {
	out := map[string]string{}
	m, _ := o["env"].(map[string]any)
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

// Worker is one machine of an endpoint.
type Worker struct {
	ID           string  `json:"id"`
	Status       string  `json:"status"` // RUNNING, IDLE, INITIALIZING, THROTTLED, UNHEALTHY
	IsStale      bool    `json:"isStale"`
	GPUTypeID    *string `json:"gpuTypeId"`
	DataCenterID *string `json:"dataCenterId"`
}

// Summary counts an endpoint's workers.
type Summary struct {
	Running      int `json:"running"`
	Idle         int `json:"idle"`
	Initializing int `json:"initializing"`
	Throttled    int `json:"throttled"`
	Unhealthy    int `json:"unhealthy"`
	Total        int `json:"total"`
}

// Workers are those of an endpoint.
type Workers struct {
	Workers []Worker `json:"workers"`
	Summary Summary  `json:"summary"`
}

// Problem is the API's own word on what went wrong (RFC 9457).
type Problem struct {
	Status int      `json:"status"`
	Title  string   `json:"title"`
	Detail string   `json:"detail"`
	Errors []string `json:"errors"`
}

func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "RunPod answers %d", p.Status)
	for _, part := range append([]string{p.Title, p.Detail}, p.Errors...) {
		if part = strings.TrimSpace(part); part != "" {
			b.WriteString(": ")
			b.WriteString(clip(part))
		}
	}
	switch p.Status {
	case http.StatusUnauthorized:
		b.WriteString(" (is the key right? RUNPOD_API_KEY, or the setting runpod.key)")
	case http.StatusForbidden:
		b.WriteString(" (the key may not do this: make one with write access)")
	}
	return b.String()
}

// IsStatus reports whether err is a Problem of that status.
func IsStatus(err error, status int) bool {
	var p *Problem
	return errors.As(err, &p) && p.Status == status
}

// ErrUnknown: the request was sent, and whether it did anything is not known.
var ErrUnknown = errors.New("no answer: it is not known whether the request took effect")

func clip(s string) string {
	if len(s) > 500 {
		return s[:500] + "…"
	}
	return s
}

// Client makes requests. It is safe for concurrent use.
type Client struct {
	base  string
	key   string
	agent string
	http  *http.Client
	// Sleep waits between tries; a test's own may not.
	Sleep func(context.Context, time.Duration) error
}

// New returns a client of the API at base. A key is sent over https only, but
// for this machine's own addresses.
func New(base, key, agent string, h *http.Client) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(base, "/"))
	if err != nil || u.Hostname() == "" || u.User != nil {
		return nil, errors.New("the address of RunPod's API is malformed")
	}
	ip := net.ParseIP(u.Hostname())
	if local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return nil, fmt.Errorf("%s: a key is sent over https only", u.Redacted())
	}
	if key == "" {
		return nil, errors.New("no API key: set RUNPOD_API_KEY, or the setting runpod.key")
	}
	c := *h
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: u.String(), key: key, agent: agent, http: &c, Sleep: sleep}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Templates lists the account's templates, Endpoints its endpoints.
func (c *Client) Templates(ctx context.Context) ([]Object, error) {
	var out struct{ Templates []Object }
	err := c.call(ctx, "GET", "/v2/templates", nil, &out)
	return out.Templates, err
}

func (c *Client) Endpoints(ctx context.Context) ([]Object, error) {
	var out struct{ Endpoints []Object }
	err := c.call(ctx, "GET", "/v2/serverless", nil, &out)
	return out.Endpoints, err
}

// Workers lists an endpoint's workers.
func (c *Client) Workers(ctx context.Context, endpoint string) (*Workers, error) {
	var out Workers
	err := c.call(ctx, "GET", "/v2/serverless/"+url.PathEscape(endpoint)+"/workers", nil, &out)
	return &out, err
}

// Send makes a request that changes something: a method, a path and a body.
// With ErrUnknown it may have been done.
func (c *Client) Send(ctx context.Context, method, path string, body any) (Object, error) {
	var out Object
	err := c.call(ctx, method, path, body, &out)
	return out, err
}

// Bounds of requests.
const (
	tries      = 6
	timeout    = 30 * time.Second
	maxReply   = 32 << 20
	maxBackOff = 30 * time.Second
)

// call makes a request. It is made again where that cannot do a thing twice:
// what was refused for its rate was not done, and all but POST comes to the
// same when done again.
func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	wait := time.Second
	for try := 1; ; try++ {
		after, err := c.once(ctx, method, path, data, out)
		var p *Problem
		answered := errors.As(err, &p)
		limited := answered && p.Status == http.StatusTooManyRequests
		again := limited || method != "POST" && (!answered || p.Status >= 500)
		if err == nil || !again || try == tries || ctx.Err() != nil {
			if err != nil && method == "POST" && (!answered || p.Status >= 500) {
				return fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			return err
		}
		if err := c.Sleep(ctx, max(wait, after)); err != nil {
			return err
		}
		wait = min(2*wait, maxBackOff)
	}
}

// once makes a request and reads the answer; after is its Retry-After.
func (c *Client) once(ctx context.Context, method, path string, data []byte, out any) (after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var r io.Reader
	if data != nil {
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, r)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.agent)
	if data != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err != nil {
		return 0, err
	}
	if len(b) > maxReply {
		return 0, fmt.Errorf("the answer is larger than %d bytes", maxReply)
	}
	if res.StatusCode >= 300 {
		if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
			after = time.Duration(min(s, 600)) * time.Second
		}
		// A service may repeat parts of a request: the key must not be in them.
		return after, problem(res, bytes.ReplaceAll(b, []byte(c.key), []byte("***")))
	}
	if len(b) == 0 {
		return 0, nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return 0, fmt.Errorf("%s %s: RunPod's answer is not JSON: %w", method, path, err)
	}
	return 0, nil
}

// problem reads an answer that is an error, whatever its form.
func problem(res *http.Response, b []byte) error {
	p := &Problem{}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if !strings.HasSuffix(kind, "json") || json.Unmarshal(b, p) != nil {
		*p = Problem{Detail: strings.TrimSpace(strings.ToValidUTF8(string(b), ""))}
	}
	p.Status = res.StatusCode
	if p.Title == "" {
		p.Title = http.StatusText(res.StatusCode)
	}
	return p
}

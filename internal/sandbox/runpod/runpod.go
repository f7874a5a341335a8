package runpod

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sallyport/internal/sandbox"
	"sallyport/internal/state"
)

// Name is the engine's.
const Name = "runpod"

// DefaultURL is where RunPod's job API is.
const DefaultURL = "https://api.runpod.ai/v2"

// Options of a Backend.
type Options struct {
	// Key reads the API key. It is called when the key is needed, and no more
	// after it has succeeded.
	Key func(context.Context) (string, error)
	// Endpoint is the ID of the serverless endpoint.
	Endpoint string
	// URL is the address of the job API; empty is DefaultURL.
	URL string
	// AcceptUnknown lets code be sent to a worker that does not say what it
	// enforces.
	AcceptUnknown bool
	// State keeps what is known of endpoints, and the name of this Sallyport.
	State state.Dir
	// Proxy chooses a proxy for a request; nil: none.
	Proxy func(*url.URL) (*url.URL, error)
	// Transport replaces the network, for tests.
	Transport http.RoundTripper
	Log       *slog.Logger
}

// Backend is the engine. It is safe for concurrent use.
type Backend struct {
	opts  Options
	url   string
	http  *http.Client
	gates map[string]*gate
	log   *slog.Logger

	keyMu sync.Mutex
	key   string

	mu       sync.Mutex
	owner    string
	asking   map[string]chan struct{} // endpoints whose workers are being asked
	reported map[string]*known

	listing chan struct{} // held by who asks for lists
	lists   map[string]jobList
}

var (
	_ sandbox.Backend = (*Backend)(nil)
	_ sandbox.Sweeper = (*Backend)(nil)
)

// New returns the engine, and reaches for nothing yet.
func New(opts Options) (*Backend, error) {
	if opts.URL == "" {
		opts.URL = DefaultURL
	}
	base, err := checkURL(opts.URL)
	if err != nil {
		return nil, fmt.Errorf("runpod.url %q: %w", opts.URL, err)
	}
	if opts.Endpoint != "" && !validEndpoint.MatchString(opts.Endpoint) {
		return nil, fmt.Errorf("runpod.endpoint %q is not the ID of an endpoint, such as 4m7x2k9q", opts.Endpoint)
	}
	if opts.Key == nil || opts.Log == nil {
		return nil, errors.New("runpod: a key's reader and a logger are required")
	}
	transport := opts.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy: func(r *http.Request) (*url.URL, error) {
				if opts.Proxy == nil || strings.HasPrefix(base, "http:") {
					return nil, nil
				}
				return opts.Proxy(r.URL)
			},
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: 15 * time.Second, IdleConnTimeout: 90 * time.Second,
			MaxIdleConnsPerHost: 64, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &Backend{
		opts: opts, url: base, log: opts.Log, gates: newGates(),
		// The key goes to one address, and nowhere that this one points to.
		http:   &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		asking: map[string]chan struct{}{}, reported: map[string]*known{},
		listing: make(chan struct{}, 1), lists: map[string]jobList{},
	}, nil
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return Name }

// Close implements sandbox.Backend. Runs are RunPod's and go on: whoever holds
// one ends it, or its record finds it later.
func (b *Backend) Close() error {
	b.http.CloseIdleConnections()
	return nil
}

func (b *Backend) fail(op string, kind error, format string, args ...any) error {
	return &sandbox.Error{Op: op, Backend: Name, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// api of an endpoint; runs of an earlier configuration have another.
func (b *Backend) api(endpoint string) *api {
	return &api{base: b.url + "/" + endpoint, endpoint: endpoint, key: b.readKey, http: b.http, gates: b.gates}
}

func (b *Backend) readKey(ctx context.Context) (string, error) {
	b.keyMu.Lock()
	defer b.keyMu.Unlock()
	if b.key != "" {
		return b.key, nil
	}
	key, err := b.opts.Key(ctx)
	if err != nil {
		return "", err
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", errNoKey
	}
	for _, r := range key {
		if r <= ' ' || r >= 0x7f {
			return "", errors.New("the API key of RunPod has characters that no key has")
		}
	}
	b.key = key
	return key, nil
}

var errNoKey = errors.New("there is no API key for RunPod: set the environment variable RUNPOD_API_KEY, or runpod.key in the configuration (keys are made at https://console.runpod.io/user/settings)")

const noEndpoint = "no endpoint is set: set RUNPOD_ENDPOINT_ID, or runpod.endpoint in the configuration (`sallyport deploy runpod` makes one)"

// instance names this Sallyport, that is, its state directory, to the jobs
// that it submits.
func (b *Backend) instance() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.owner != "" {
		return b.owner
	}
	const file = "instance"
	if unlock, err := b.opts.State.Lock(file); err == nil {
		defer unlock()
		if have, err := b.opts.State.Read(file, 64); err == nil && len(have) == 26 {
			b.owner = string(have)
			return b.owner
		}
	}
	b.owner = strings.ToLower(rand.Text())
	if err := b.opts.State.Write(file, []byte(b.owner)); err != nil && !errors.Is(err, state.ErrNoPlace) {
		b.log.Warn("runpod: the name of this Sallyport could not be kept", "error", err)
	}
	return b.owner
}

// explain is a request's failure as an error that says what to do.
func (b *Backend) explain(op, endpoint string, t *trouble) error {
	switch {
	case errors.Is(t.err, context.DeadlineExceeded) && t.sent:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod did not answer in time")
	case errors.Is(t.err, context.Canceled), errors.Is(t.err, context.DeadlineExceeded):
		return &sandbox.Error{Op: op, Backend: Name, Err: t.err}
	case errors.Is(t.err, errNoKey):
		return &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrUnavailable, Err: errNoKey}
	case errors.Is(t.err, errRefusedHere): // RunPod has no part in it, or was reached
		return b.fail(op, sandbox.ErrUnavailable, "%s", strings.TrimPrefix(t.err.Error(), errRefusedHere.Error()+": "))
	case t.status == 401 || t.status == 403:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod refused the API key (HTTP %d): check RUNPOD_API_KEY or runpod.key; the key needs access to endpoint %s (keys are made at https://console.runpod.io/user/settings)", t.status, endpoint)
	case t.status == 404:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod has no endpoint %s, or it belongs to another account than the API key: check RUNPOD_ENDPOINT_ID or runpod.endpoint", endpoint)
	case t.status == 413:
		return b.fail(op, sandbox.ErrInvalidSpec, "RunPod finds the code and its files too large (HTTP 413): it takes 10 MB in a job, and 20 MB where the time limit is short or the files need it")
	case t.status == 400 || t.status == 422:
		return b.fail(op, sandbox.ErrInvalidSpec, "RunPod refused the job (HTTP %d)%s", t.status, after(": ", t.text))
	case t.status == 429:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod takes no more requests for endpoint %s now (HTTP 429), and did not for minutes: too many programs use it at a time; try again later", endpoint)
	case t.status >= 500:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod has trouble of its own (HTTP %d)%s: try again later; https://uptime.runpod.io says more", t.status, after(": ", t.text))
	case t.status != 0:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod answered %s with HTTP %d%s", t.op, t.status, after(": ", t.text))
	}
	return b.fail(op, sandbox.ErrUnavailable, "RunPod could not be reached at %s: %w", b.url, t.err)
}

func after(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

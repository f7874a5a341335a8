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

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// Name is the service's name.
const Name = "runpod"

// DefaultURL is the address of RunPod's job API.
const DefaultURL = "https://api.runpod.ai/v2"

// Options configure a Service.
type Options struct {
	// Key reads the API key. It is called when the key is first needed, and not
	// again after it has succeeded.
	Key func(context.Context) (string, error)
	// Endpoint is the ID of the serverless endpoint.
	Endpoint string
	// URL is the address of the job API; empty is DefaultURL.
	URL string
	// AcceptUnknown allows sending code to a worker that does not report what it
	// enforces.
	AcceptUnknown bool
	// State keeps what is known about endpoints, and the name of this
	// installation.
	State store.Dir
	// Proxy chooses a proxy for a request; nil: none.
	Proxy func(*url.URL) (*url.URL, error)
	// Transport replaces the network, for tests.
	Transport http.RoundTripper
	Log       *slog.Logger
}

// Service is the batch service. It is safe for concurrent use.
type Service struct {
	opts  Options
	url   string
	http  *http.Client
	gates map[string]*gate
	log   *slog.Logger

	keyMu sync.Mutex
	key   string

	mu       sync.Mutex
	owner    string
	asking   map[string]chan struct{} // endpoints whose workers are being probed
	reported map[string]*known

	listing chan struct{} // held while a list is requested
	lists   map[string]jobList
}

var _ batch.Service = (*Service)(nil)

// New returns the service. It sends nothing.
func New(opts Options) (*Service, error) {
	if opts.URL == "" {
		opts.URL = DefaultURL
	}
	base, err := checkURL(opts.URL)
	if err != nil {
		return nil, fmt.Errorf("runpod.url %q: %w", opts.URL, err)
	}
	if opts.Endpoint != "" && !validEndpoint().MatchString(opts.Endpoint) {
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
	return &Service{
		opts: opts, url: base, log: opts.Log, gates: newGates(),
		// The key goes to one address, and does not follow redirects.
		http:   &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		asking: map[string]chan struct{}{}, reported: map[string]*known{},
		listing: make(chan struct{}, 1), lists: map[string]jobList{},
	}, nil
}

// Name implements batch.Service.
func (b *Service) Name() string { return Name }

// Close implements batch.Service. Runs go on: their owner ends them, or finds
// them later by their records.
func (b *Service) Close() error {
	b.http.CloseIdleConnections()
	return nil
}

func (b *Service) fail(op string, kind error, format string, args ...any) error {
	return &sandbox.Error{Op: op, Backend: Name, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// api returns the job API of an endpoint. Runs from an earlier configuration may
// have another endpoint.
func (b *Service) api(endpoint string) *api {
	return &api{base: b.url + "/" + endpoint, endpoint: endpoint, key: b.readKey, http: b.http, gates: b.gates}
}

func (b *Service) readKey(ctx context.Context) (string, error) {
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
			return "", errors.New("the API key of RunPod contains characters that are not allowed in a key")
		}
	}
	b.key = key
	return key, nil
}

var errNoKey = errors.New("there is no API key for RunPod: set the environment variable RUNPOD_API_KEY, or runpod.key in the configuration (create one at https://console.runpod.io/user/settings)")

const noEndpoint = "no endpoint is set: set RUNPOD_ENDPOINT_ID, or runpod.endpoint in the configuration (`sallyport deploy runpod` creates one)"

// instance returns the name of this installation, that is, of its state
// directory, which its jobs carry.
func (b *Service) instance() string {
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
	if err := b.opts.State.Write(file, []byte(b.owner)); err != nil && !errors.Is(err, store.ErrNoPlace) {
		b.log.Warn("runpod: the name of this installation could not be saved", "error", err)
	}
	return b.owner
}

// explain returns an error that says why a request failed and what to do.
func (b *Service) explain(op, endpoint string, t *trouble) error {
	switch {
	case errors.Is(t.err, context.DeadlineExceeded) && t.sent:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod did not answer in time")
	case errors.Is(t.err, context.Canceled), errors.Is(t.err, context.DeadlineExceeded):
		return &sandbox.Error{Op: op, Backend: Name, Err: t.err}
	case errors.Is(t.err, errNoKey):
		return &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrUnavailable, Err: errNoKey}
	case errors.Is(t.err, errRefusedHere): // not RunPod's fault
		return b.fail(op, sandbox.ErrUnavailable, "%s", strings.TrimPrefix(t.err.Error(), errRefusedHere.Error()+": "))
	case t.status == 401 || t.status == 403:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod refused the API key (HTTP %d): check RUNPOD_API_KEY or runpod.key; the key needs access to endpoint %s (create one at https://console.runpod.io/user/settings)", t.status, endpoint)
	case t.status == 404:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod has no endpoint %s, or it belongs to another account than the API key: check RUNPOD_ENDPOINT_ID or runpod.endpoint", endpoint)
	case t.status == 413:
		return b.fail(op, sandbox.ErrInvalidSpec, "the code and its files are too large for RunPod (HTTP 413): it accepts 10 MB in a job, and 20 MB with a short time limit")
	case t.status == 400 || t.status == 422:
		return b.fail(op, sandbox.ErrInvalidSpec, "RunPod refused the job (HTTP %d)%s", t.status, after(": ", t.text))
	case t.status == 429:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod has accepted no more requests for endpoint %s for minutes (HTTP 429): too many programs use it at once; try again later", endpoint)
	case t.status >= 500:
		return b.fail(op, sandbox.ErrUnavailable, "RunPod failed internally (HTTP %d)%s: try again later; see https://uptime.runpod.io", t.status, after(": ", t.text))
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

// Package kaggle is the batch service that runs code as private scripts on
// Kaggle, with the user's own credentials and quota.
//
// Kaggle offers neither an idempotent start nor a call that ends a session,
// and the package is built around both. A run's script has its own slug, made
// from the run's ID, and is pushed once: if the answer is lost, the slug is
// searched for. The session's time limit is always set, and the script itself
// does not run the code once the run has been given up. A COMPLETE session
// does not mean that the code succeeded: what counts is the result file that
// the script leaves, and that file is as hostile as everything else that
// comes back.
package kaggle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const name = "kaggle"

// Options configure the service.
type Options struct {
	// URL is the address of the API: https, or http on this machine. Empty:
	// Kaggle's own.
	URL string
	// Credentials are looked for in these places.
	Credentials Sources
	// Instance is part of the slugs of this installation's runs: 1 to 12
	// characters of a-z and 0-9.
	Instance string
	// Accelerator is the default of runs.
	Accelerator string
	// Internet lets every session reach the network.
	Internet bool
	// Keep leaves all runs at Kaggle.
	Keep bool
	// MaxOutput bounds the files that come back from one run, in bytes.
	MaxOutput int64
	// CodeCarbon runs codecarbon next to the code, in sessions with internet;
	// Country (ISO 3166-1 alpha-3) and Region are its location.
	CodeCarbon      bool
	Country, Region string
	// Proxy chooses a proxy for a URL. Nil: none is used.
	Proxy func(*url.URL) (*url.URL, error)
	// Poll is the initial interval between requests for a run's state, which
	// grows. Zero: two seconds.
	Poll time.Duration
	// Log receives failures that no caller waits for. Never nil.
	Log *slog.Logger
}

const (
	defaultURL       = "https://api.kaggle.com"
	defaultPoll      = 2 * time.Second
	defaultMaxOutput = 1 << 30
	defaultTimeout   = 10 * time.Minute
	defaultQueue     = time.Hour
)

var validInstance = lazyregexp.New(`\A[a-z0-9]{1,12}\z`)

// Service is the batch service. Make one with New.
type Service struct {
	opts    Options
	client  *client
	modules map[string]string // of the bootstrap, by name
}

var _ batch.Service = (*Service)(nil)

// New returns the service. It sends nothing.
func New(opts Options) (*Service, error) {
	if opts.URL == "" {
		opts.URL = defaultURL
	}
	base, err := parseBase(opts.URL)
	if err != nil {
		return nil, fmt.Errorf("kaggle.url: %w", err)
	}
	if !validInstance().MatchString(opts.Instance) {
		return nil, fmt.Errorf("instance %q: want 1 to 12 characters from a-z and 0-9", opts.Instance)
	}
	if _, _, err := accelerator(opts.Accelerator, ""); err != nil {
		return nil, fmt.Errorf("kaggle.accelerator: %w", err)
	}
	if opts.MaxOutput <= 0 {
		opts.MaxOutput = defaultMaxOutput
	}
	if opts.Poll <= 0 {
		opts.Poll = defaultPoll
	}
	if opts.Log == nil {
		return nil, errors.New("no logger")
	}
	return &Service{
		opts: opts, client: newClient(base, opts),
		modules: map[string]string{"program": programSource, "gauge": gaugeSource, "results": resultsSource, "carbon": carbonSource},
	}, nil
}

// Name implements batch.Service.
func (b *Service) Name() string { return name }

// Close implements batch.Service. Runs outlive the program.
func (b *Service) Close() error {
	b.client.close()
	return nil
}

func fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: name, Kind: kind, Err: err}
}

// report returns what Kaggle offers every account.
func (b *Service) report() *sandbox.Report {
	return &sandbox.Report{
		Backend: name, Usable: true, Isolation: sandbox.PlatformIsolation, Remote: true, Runtime: "that of Kaggle's image",
		Limits: map[sandbox.Resource]sandbox.LimitReport{
			sandbox.Memory:    {Enforcement: sandbox.Hard, By: "Kaggle's session: all of its machine, some 30 GB"},
			sandbox.Disk:      {Enforcement: sandbox.Hard, By: "Kaggle's session: 20 GB in /kaggle/working"},
			sandbox.CPU:       {Enforcement: sandbox.Hard, By: "Kaggle's session: the cores of its machine"},
			sandbox.Processes: {Enforcement: sandbox.Soft, By: "the run's own script, which ends a program of more than 4096 processes and threads"},
			sandbox.OpenFiles: {Enforcement: sandbox.Absent},
		},
	}
}

// Probe implements batch.Service: it finds the credentials, and asks Kaggle for
// their owner and the remaining quota.
func (b *Service) Probe(ctx context.Context) (*sandbox.Report, error) {
	r := b.report()
	found, err := b.opts.Credentials.find()
	r.Findings = append(r.Findings, found.warnings...)
	if err != nil {
		r.Usable = false
		r.Findings = append(r.Findings, sandbox.Finding{Fatal: true, Title: err.Error(), Remedy: credentialRemedy})
		return r, nil
	}
	user, err := b.client.user(ctx)
	if err == nil {
		var quota quotaAnswer
		err = b.client.call(ctx, callQuota, struct{}{}, &quota)
		if err == nil {
			r.Findings = append(r.Findings, sandbox.Finding{
				Title:  fmt.Sprintf("Kaggle knows you as %s, by %s", user, found.source),
				Detail: quota.String(),
			})
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fail("probe", nil, ctx.Err())
		}
		r.Usable = false
		r.Findings = append(r.Findings, finding(err, found.source))
	}
	return r, nil
}

// finding explains an error of the API to the person who sets this up.
func finding(err error, source string) sandbox.Finding {
	var answer *apiError
	if errors.As(err, &answer) {
		switch answer.status {
		case http.StatusUnauthorized:
			return sandbox.Finding{Fatal: true, Title: "Kaggle rejects the credentials from " + source, Detail: answer.Error(), Remedy: credentialRemedy}
		case http.StatusForbidden:
			return sandbox.Finding{Fatal: true, Title: "Kaggle does not let this account do that", Detail: answer.Error(), Remedy: "verify the account's phone number on https://www.kaggle.com/settings, and give the token access to notebooks"}
		}
	}
	return sandbox.Finding{Fatal: true, Title: "Kaggle cannot be used now", Detail: err.Error(), Remedy: "try again later; https://www.kaggle.com must be reachable"}
}

// Package kaggle is the batch engine that runs code as a private script on
// Kaggle, with the user's own credentials and quota.
//
// Kaggle has no idempotent start and no call that ends a session, and the
// engine is built around both. A run's script has a slug of its own, made from
// the run's ID, and is pushed once: where the answer is lost, the slug is
// looked for. The session's time limit is always set, and the script itself
// does not run the code once the run has been given up. That a session is
// COMPLETE says nothing of the code: what counts is the result file that the
// script leaves, and that file is as hostile as everything else that comes
// back.
package kaggle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"sallyport/internal/sandbox"
)

const name = "kaggle"

// Options configure the engine.
type Options struct {
	// URL is the API's address, https unless it is on this machine. Empty:
	// Kaggle's own.
	URL string
	// Credentials are looked for in these places.
	Credentials Sources
	// Instance is what the slugs of this installation's runs have in common:
	// 1 to 12 characters of a-z and 0-9.
	Instance string
	// Accelerator is what a run gets that asks for none.
	Accelerator string
	// Internet lets every session reach the network.
	Internet bool
	// Keep leaves all runs at Kaggle.
	Keep bool
	// MaxOutput bounds the files that come back from one run, in bytes.
	MaxOutput int64
	// CodeCarbon runs codecarbon beside the code, in sessions with internet;
	// Country (ISO 3166-1 alpha-3) and Region are what it is told of the place.
	CodeCarbon      bool
	Country, Region string
	// Proxy chooses a proxy for a URL. Nil: none is used.
	Proxy func(*url.URL) (*url.URL, error)
	// Poll is how often a run's state is asked for at first. Zero: every two
	// seconds. Later it is asked for less often.
	Poll time.Duration
	// Log gets what goes wrong without anybody waiting. Never nil.
	Log *slog.Logger
}

const (
	defaultURL       = "https://api.kaggle.com"
	defaultPoll      = 2 * time.Second
	defaultMaxOutput = 1 << 30
	defaultTimeout   = 10 * time.Minute
	defaultQueue     = time.Hour
)

var validInstance = regexp.MustCompile(`\A[a-z0-9]{1,12}\z`)

// Backend is the engine. Make one with New.
type Backend struct {
	opts    Options
	client  *client
	modules map[string]string // of the bootstrap, by name
}

var (
	_ sandbox.Backend = (*Backend)(nil)
	_ sandbox.Sweeper = (*Backend)(nil)
)

// New makes the engine. It asks nobody anything.
func New(opts Options) (*Backend, error) {
	if opts.URL == "" {
		opts.URL = defaultURL
	}
	base, err := parseBase(opts.URL)
	if err != nil {
		return nil, fmt.Errorf("kaggle.url: %w", err)
	}
	if !validInstance.MatchString(opts.Instance) {
		return nil, fmt.Errorf("instance %q: 1 to 12 characters of a-z and 0-9", opts.Instance)
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
	return &Backend{
		opts: opts, client: newClient(base, opts),
		modules: map[string]string{"program": programSource, "gauge": gaugeSource, "results": resultsSource, "beside": besideSource},
	}, nil
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return name }

// Close implements sandbox.Backend. Runs outlive the program: it ends none.
func (b *Backend) Close() error {
	b.client.close()
	return nil
}

func fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: name, Kind: kind, Err: err}
}

// report is what Kaggle offers, whoever asks.
func (b *Backend) report() *sandbox.Report {
	return &sandbox.Report{
		Backend: name, Usable: true, Isolation: sandbox.PlatformIsolation, Remote: true, Python: "that of Kaggle's image",
		Limits: map[sandbox.Resource]sandbox.LimitReport{
			sandbox.Memory:    {Enforcement: sandbox.Hard, By: "Kaggle's session: all of its machine, some 30 GB"},
			sandbox.Disk:      {Enforcement: sandbox.Hard, By: "Kaggle's session: 20 GB in /kaggle/working"},
			sandbox.CPU:       {Enforcement: sandbox.Hard, By: "Kaggle's session: the cores of its machine"},
			sandbox.Processes: {Enforcement: sandbox.Soft, By: "the run's own script, which ends a program of more than 4096 processes and threads"},
			sandbox.OpenFiles: {Enforcement: sandbox.Absent},
		},
	}
}

// Probe implements sandbox.Backend: it looks for credentials, and asks Kaggle
// whose they are and how much of the quota is left.
func (b *Backend) Probe(ctx context.Context) (*sandbox.Report, error) {
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

// finding says what an error of the API means for somebody who sets this up.
func finding(err error, source string) sandbox.Finding {
	var answer *apiError
	if errors.As(err, &answer) {
		switch answer.status {
		case http.StatusUnauthorized:
			return sandbox.Finding{Fatal: true, Title: "Kaggle refuses the credentials of " + source, Detail: answer.Error(), Remedy: credentialRemedy}
		case http.StatusForbidden:
			return sandbox.Finding{Fatal: true, Title: "Kaggle does not let this account do that", Detail: answer.Error(), Remedy: "verify the account's phone number on https://www.kaggle.com/settings, and give the token the right to notebooks"}
		}
	}
	return sandbox.Finding{Fatal: true, Title: "Kaggle cannot be used now", Detail: err.Error(), Remedy: "try again later; https://www.kaggle.com must be in reach"}
}

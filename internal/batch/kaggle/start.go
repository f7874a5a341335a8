package kaggle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const (
	// maxSlug is that of Kaggle's titles, from which it makes slugs. It
	// answers a longer one with an internal error.
	maxSlug = 50
	// What a session does besides running the code: it starts an image, and
	// may install codecarbon before, and stores files afterwards.
	overhead = 10 * time.Minute
	// Kaggle's own limits.
	maxSession    = 12 * time.Hour
	maxTPUSession = 9 * time.Hour
	// lateness is the assumed difference between the clocks of Kaggle and of this
	// machine.
	lateness = time.Minute
)

// handle is the data of a run's handle. It contains no secret.
type handle struct {
	User string `json:"user"`
	Slug string `json:"slug"`
	URL  string `json:"url"`
	// Unsure: the push was not answered.
	Unsure      bool      `json:"unsure,omitempty"`
	Pushed      time.Time `json:"pushed"`
	NotAfter    time.Time `json:"notAfter"` // the code does not begin later
	Until       time.Time `json:"until"`    // the session has ended by then
	CodeSHA256  string    `json:"codeSha256"`
	OutputBytes int64     `json:"outputBytes"`
	Accelerator string    `json:"accelerator,omitempty"`
	Keep        bool      `json:"keep,omitempty"`
	Notes       []string  `json:"notes,omitempty"`
}

const handleVersion = 1

func (b *Service) prefix() string        { return "sallyport-" + b.opts.Instance + "-" }
func (b *Service) slug(id string) string { return b.prefix() + id }
func (b *Service) pageOf(h *handle) string {
	return "https://www.kaggle.com/code/" + h.User + "/" + h.Slug
}

// Submit implements batch.Service: it pushes the run's script, once.
func (b *Service) Submit(ctx context.Context, job *batch.Job) (batch.Run, error) {
	p, notes, err := b.plan(job)
	if err != nil {
		kind := sandbox.ErrInvalidSpec
		if errors.Is(err, sandbox.ErrUnsupported) {
			kind = sandbox.ErrUnsupported
		}
		return nil, fail("start", kind, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fail("start", sandbox.ErrStart, err)
	}
	text, hash, err := p.script(b.modules)
	if err != nil {
		return nil, fail("start", sandbox.ErrInvalidSpec, err)
	}
	user, err := b.client.user(ctx)
	if err != nil {
		return nil, fail("start", sandbox.ErrUnavailable, explain(err))
	}
	now := time.Now().UTC().Truncate(time.Second)
	h := &handle{
		User: user, Slug: b.slug(job.ID), Pushed: now, NotAfter: p.notAfter.UTC(), Until: p.notAfter.UTC().Add(p.timeout + overhead),
		CodeSHA256: hash, OutputBytes: p.output, Accelerator: p.shape, Keep: job.Keep || b.opts.Keep, Notes: notes,
	}
	h.URL = b.pageOf(h)
	request := saveRequest{
		Slug: user + "/" + h.Slug, NewTitle: h.Slug, Text: text, Language: "python", KernelType: "script", IsPrivate: true,
		DatasetDataSources: p.sources.datasets, CompetitionDataSources: p.sources.competitions, KernelDataSources: p.sources.kernels, ModelDataSources: p.sources.models,
		EnableGPU: isGPU(p.shape), EnableTPU: isTPU(p.shape), EnableInternet: p.internet, MachineShape: p.shape,
		SessionTimeoutSeconds: int((p.timeout + overhead) / time.Second),
	}
	var answer saveAnswer
	err = b.client.callOnce(ctx, callSave, request, &answer)
	var lost *lostError
	switch {
	case errors.As(err, &lost):
		// It may have begun. Pushing again could run the code twice, so Result
		// searches for it.
		h.Unsure = true
		b.opts.Log.Info("the push of a run was not answered", "run", job.ID, "error", err)
	case err != nil:
		return nil, fail("start", sandbox.ErrStart, explain(err))
	case answer.Error != "":
		return nil, fail("start", sandbox.ErrStart, refusal(clean(answer.Error, nil)))
	default:
		h.Notes = append(h.Notes, answer.notes()...)
	}
	return newRun(b, job.ID, h), nil
}

// notes lists the inputs that Kaggle rejected in a push that it accepted.
func (a *saveAnswer) notes() []string {
	var notes []string
	for _, list := range [][]string{a.InvalidDatasetSources, a.InvalidCompetitionSources, a.InvalidKernelSources, a.InvalidModelSources} {
		if len(list) > 0 {
			notes = append(notes, "Kaggle does not have, or does not let you use: "+clean(strings.Join(list, ", "), nil))
		}
	}
	return notes
}

// refusal explains why Kaggle rejected a push.
func refusal(message string) error {
	lower := strings.ToLower(message)
	switch {
	case strings.Contains(lower, "session count"):
		return fmt.Errorf("no more of your sessions can run at Kaggle at the same time: %s Wait until one has ended (see `sallyport runs list`; queued sessions count)", dotted(message))
	case strings.Contains(lower, "quota"):
		return fmt.Errorf("this week's quota at Kaggle is used up: %s `sallyport doctor` shows when the next week begins; without an accelerator, code still runs", dotted(message))
	}
	return errors.New("Kaggle did not accept the run: " + message)
}

func dotted(s string) string { return strings.TrimRight(s, ". ") + "." }

// explain adds to an error what to do about it.
func explain(err error) error {
	var answer *apiError
	if errors.Is(err, errNoCredentials) {
		return fmt.Errorf("%w: %s", err, credentialRemedy)
	}
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.status {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: Kaggle refuses the credentials (`sallyport doctor` shows which; %s)", err, credentialRemedy)
	case http.StatusForbidden:
		return fmt.Errorf("%w: the account or its token is not allowed to do that (is the phone number verified?)", err)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: too many requests; try again in a few minutes", err)
	}
	return err
}

// plan checks a job and returns what to submit for it.
func (b *Service) plan(job *batch.Job) (*plan, []string, error) {
	if err := job.Check(); err != nil {
		return nil, nil, err
	}
	p := &plan{job: job, output: job.Limits.WithDefaults().OutputBytes, timeout: job.Timeout}
	longest := maxSession
	var note string
	var err error
	if p.shape, note, err = accelerator(job.Accelerator, b.opts.Accelerator); err != nil {
		return nil, nil, err
	}
	if isTPU(p.shape) {
		longest = maxTPUSession
	}
	if p.sources, err = parseSources(job.Datasets); err != nil {
		return nil, nil, err
	}
	switch {
	case !utf8.ValidString(job.Code):
		return nil, nil, errors.New("the code is not UTF-8")
	case len(b.slug(job.ID)) > maxSlug:
		return nil, nil, fmt.Errorf("the ID %q is longer than %d characters, the most that fit into a name at Kaggle", job.ID, maxSlug-len(b.prefix()))
	case strings.ContainsAny(job.Filename, "\x00\n\r"):
		return nil, nil, fmt.Errorf("the file name %q contains a line break or a null byte", job.Filename)
	case p.timeout < time.Second:
		return nil, nil, fmt.Errorf("the time limit %s is less than a second", p.timeout)
	case p.timeout > longest-overhead:
		return nil, nil, fmt.Errorf("%w: the time limit is %s: Kaggle ends sessions after %s, of which %s are reserved for starting and storing files", sandbox.ErrUnsupported, p.timeout, longest, overhead)
	}
	for _, f := range job.Files {
		if !utf8.ValidString(f.Path) || isOurs(f.Path) {
			return nil, nil, fmt.Errorf("file %q: the name must be UTF-8 and not one that Sallyport uses on Kaggle", f.Path)
		}
	}
	offered := b.report()
	if offered.Isolation < job.MinIsolation {
		return nil, nil, fmt.Errorf("%w: the job requires isolation %s; a session on Kaggle offers %s", sandbox.ErrUnsupported, job.MinIsolation, offered.Isolation)
	}
	for what, want := range job.Require {
		if has := offered.Limits[what].Enforcement; has < want {
			return nil, nil, fmt.Errorf("%w: the job requires the limit on %s to be %s; on Kaggle it is %s", sandbox.ErrUnsupported, what, want, has)
		}
	}
	var notes []string
	if note != "" {
		notes = append(notes, note)
	}
	p.internet = b.opts.Internet || job.Internet
	if b.opts.CodeCarbon {
		switch {
		case !p.internet:
			notes = append(notes, "codecarbon did not run alongside the code: it needs internet")
		case b.opts.Country == "":
			notes = append(notes, "codecarbon did not run alongside the code: carbon.kaggle.location names no country")
		default:
			p.carbon = &companion{codecarbonVersion, b.opts.Country, b.opts.Region}
		}
	}
	p.notAfter = time.Now().Add(job.Queue)
	return p, notes, nil
}

// sources are the inputs of the code, by kind.
type sources struct {
	asked, names                            []string
	datasets, competitions, kernels, models []string
}

var (
	validTwo   = lazyregexp.New(`\A[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+\z`)
	validOne   = lazyregexp.New(`\A[A-Za-z0-9_-]+\z`)
	validModel = lazyregexp.New(`\A[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+/[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+(/[0-9]+)?\z`)
)

// parseSources parses names of the form OWNER/DATASET or KIND:NAME.
func parseSources(list []string) (sources, error) {
	var s sources
	for _, text := range list {
		kind, name, ok := strings.Cut(text, ":")
		if !ok {
			kind, name = "dataset", text
		}
		var valid *regexp.Regexp
		var to *[]string
		element := 1
		switch kind {
		case "dataset":
			valid, to = validTwo(), &s.datasets
		case "kernel", "notebook":
			valid, to = validTwo(), &s.kernels
		case "competition":
			valid, to, element = validOne(), &s.competitions, 0
		case "model":
			valid, to = validModel(), &s.models
		}
		if valid == nil || !valid.MatchString(name) {
			return s, fmt.Errorf("dataset %q: want OWNER/NAME, competition:NAME, notebook:OWNER/NAME, or model:OWNER/MODEL/FRAMEWORK/VARIATION/VERSION", text)
		}
		*to = append(*to, name)
		s.asked = append(s.asked, text)
		s.names = append(s.names, strings.Split(name, "/")[element])
	}
	return s, nil
}

// Attach implements batch.Service. It searches by name for a run whose handle
// has no data because its submission was interrupted.
func (b *Service) Attach(ctx context.Context, h sandbox.Handle) (batch.Run, error) {
	if h.Backend != name {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("the run belongs to %q", h.Backend))
	}
	if len(h.Data) == 0 {
		return b.find(ctx, h.ID)
	}
	var data handle
	if err := json.Unmarshal(h.Data, &data); err != nil || h.Version != handleVersion {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("run %s was recorded by another version of this program", h.ID))
	}
	if !validName().MatchString(data.User) || !validName().MatchString(data.Slug) {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("the record of run %s is damaged", h.ID))
	}
	return newRun(b, h.ID, &data), nil
}

// find searches for a run by its ID.
func (b *Service) find(ctx context.Context, id string) (batch.Run, error) {
	user, err := b.client.user(ctx)
	if err != nil {
		return nil, fail("attach", sandbox.ErrUnavailable, explain(err))
	}
	now := time.Now().UTC().Truncate(time.Second)
	h := &handle{
		User: user, Slug: b.slug(id), Pushed: now, NotAfter: now.Add(defaultQueue), Until: now.Add(maxSession + defaultQueue),
		OutputBytes: sandbox.DefaultLimits.OutputBytes, Keep: b.opts.Keep,
	}
	h.URL = b.pageOf(h)
	_, err = b.status(ctx, kernelRequest{UserName: user, KernelSlug: h.Slug})
	if absent(err) {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("there is no run %s at Kaggle", id))
	}
	if err != nil {
		return nil, fail("attach", nil, explain(err))
	}
	return newRun(b, id, h), nil
}

// absent reports whether an error means that there is no such script: Kaggle
// forbids access to what does not exist.
func absent(err error) bool {
	var answer *apiError
	return errors.As(err, &answer) && (answer.status == http.StatusNotFound || answer.status == http.StatusForbidden)
}

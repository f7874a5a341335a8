package kaggle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport/internal/sandbox"
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
	// lateness is how far the clocks of Kaggle and of this machine may be apart.
	lateness = time.Minute
)

// handle is what is written down of a run. It has no secret in it.
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

func (b *Backend) prefix() string        { return "sallyport-" + b.opts.Instance + "-" }
func (b *Backend) slug(id string) string { return b.prefix() + id }
func (b *Backend) pageOf(h *handle) string {
	return "https://www.kaggle.com/code/" + h.User + "/" + h.Slug
}

// Start implements sandbox.Backend: it pushes the run's script, once.
func (b *Backend) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	p, notes, err := b.plan(spec)
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
		User: user, Slug: b.slug(spec.ID), Pushed: now, NotAfter: p.notAfter.UTC(), Until: p.notAfter.UTC().Add(p.timeout + overhead),
		CodeSHA256: hash, OutputBytes: p.output, Accelerator: p.shape, Keep: spec.Batch.Keep || b.opts.Keep, Notes: notes,
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
		// It may have begun. Pushing again could run the code twice: whoever
		// waits for the run looks for it.
		h.Unsure = true
		b.opts.Log.Info("the push of a run was not answered", "run", spec.ID, "error", err)
	case err != nil:
		return nil, fail("start", sandbox.ErrStart, explain(err))
	case answer.Error != "":
		return nil, fail("start", sandbox.ErrStart, refusal(clean(answer.Error, nil)))
	default:
		h.Notes = append(h.Notes, answer.notes()...)
	}
	return newRun(b, spec.ID, h), nil
}

// notes are what Kaggle did not take of a push that it took.
func (a *saveAnswer) notes() []string {
	var notes []string
	for _, list := range [][]string{a.InvalidDatasetSources, a.InvalidCompetitionSources, a.InvalidKernelSources, a.InvalidModelSources} {
		if len(list) > 0 {
			notes = append(notes, "Kaggle does not know, or does not let you use: "+clean(strings.Join(list, ", "), nil))
		}
	}
	return notes
}

// refusal explains why Kaggle did not take a push.
func refusal(message string) error {
	lower := strings.ToLower(message)
	switch {
	case strings.Contains(lower, "session count"):
		return fmt.Errorf("no more sessions run for you at Kaggle at a time: %s Wait until one has ended (`sallyport runs list`; a queued one counts, too)", dotted(message))
	case strings.Contains(lower, "quota"):
		return fmt.Errorf("this week's quota at Kaggle is used up: %s `sallyport doctor` says when the next week begins; without an accelerator code runs all the same", dotted(message))
	}
	return errors.New("the run was not taken by Kaggle: " + message)
}

func dotted(s string) string { return strings.TrimRight(s, ". ") + "." }

// explain says what to do about an error.
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
		return fmt.Errorf("%w: Kaggle refuses the credentials (`sallyport doctor` says which; %s)", err, credentialRemedy)
	case http.StatusForbidden:
		return fmt.Errorf("%w: the account or its token must not do that (is its phone number verified?)", err)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: Kaggle gets too many requests from you; try again in a few minutes", err)
	}
	return err
}

// plan checks a spec, and says what is to be done.
func (b *Backend) plan(spec *sandbox.Spec) (*plan, []string, error) {
	if err := spec.Check(); err != nil {
		return nil, nil, err
	}
	batch := &spec.Batch
	p := &plan{spec: spec, output: spec.Limits.WithDefaults().OutputBytes, timeout: cmp.Or(batch.Timeout, defaultTimeout)}
	longest := maxSession
	var note string
	var err error
	if p.shape, note, err = accelerator(batch.Accelerator, b.opts.Accelerator); err != nil {
		return nil, nil, err
	}
	if isTPU(p.shape) {
		longest = maxTPUSession
	}
	if p.sources, err = parseSources(batch.Datasets); err != nil {
		return nil, nil, err
	}
	switch {
	case spec.Code == "":
		return nil, nil, errors.New("a run without code")
	case !utf8.ValidString(spec.Code):
		return nil, nil, errors.New("the code is not UTF-8")
	case len(b.slug(spec.ID)) > maxSlug:
		return nil, nil, fmt.Errorf("ID %q: at most %d characters, for Kaggle's names are short", spec.ID, maxSlug-len(b.prefix()))
	case strings.ContainsAny(batch.Filename, "\x00\n\r"):
		return nil, nil, fmt.Errorf("file name %q", batch.Filename)
	case p.timeout < time.Second || batch.Queue < 0:
		return nil, nil, fmt.Errorf("a time limit of %s", p.timeout)
	case p.timeout > longest-overhead:
		return nil, nil, fmt.Errorf("%w: a time limit of %s: Kaggle ends sessions after %s, of which %s are for what surrounds the code", sandbox.ErrUnsupported, p.timeout, longest, overhead)
	case spec.Root != (sandbox.Root{}):
		return nil, nil, fmt.Errorf("%w: an image or interpreter of one's own on Kaggle", sandbox.ErrUnsupported)
	}
	for _, f := range spec.Files {
		if !utf8.ValidString(f.Path) || isOurs(f.Path) {
			return nil, nil, fmt.Errorf("file %q: a name in UTF-8 that is not the engine's own is needed", f.Path)
		}
	}
	offered := b.report()
	if offered.Isolation < batch.MinIsolation {
		return nil, nil, fmt.Errorf("%w: isolation by %s; a session on Kaggle offers %s", sandbox.ErrUnsupported, batch.MinIsolation, offered.Isolation)
	}
	for what, want := range batch.Require {
		if has := offered.Limits[what].Enforcement; has < want {
			return nil, nil, fmt.Errorf("%w: a limit on %s that is %s; on Kaggle it is %s", sandbox.ErrUnsupported, what, want, has)
		}
	}
	var notes []string
	if note != "" {
		notes = append(notes, note)
	}
	p.internet = b.opts.Internet || spec.Network == sandbox.NetworkInternet
	if b.opts.CodeCarbon {
		switch {
		case !p.internet:
			notes = append(notes, "codecarbon did not run beside the code: it needs internet")
		case b.opts.Country == "":
			notes = append(notes, "codecarbon did not run beside the code: carbon.kaggle.location says no country")
		default:
			p.carbon = &companion{codecarbonVersion, b.opts.Country, b.opts.Region}
		}
	}
	p.notAfter = time.Now().Add(cmp.Or(batch.Queue, defaultQueue))
	return p, notes, nil
}

// sources are what is put beside the code, by kind.
type sources struct {
	asked, names                            []string
	datasets, competitions, kernels, models []string
}

var (
	validTwo   = regexp.MustCompile(`\A[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+\z`)
	validOne   = regexp.MustCompile(`\A[A-Za-z0-9_-]+\z`)
	validModel = regexp.MustCompile(`\A[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+/[A-Za-z0-9_-]+/[A-Za-z0-9_.-]+(/[0-9]+)?\z`)
)

// parseSources reads what a user names: OWNER/DATASET, or with the kind before
// it.
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
			valid, to = validTwo, &s.datasets
		case "kernel", "notebook":
			valid, to = validTwo, &s.kernels
		case "competition":
			valid, to, element = validOne, &s.competitions, 0
		case "model":
			valid, to = validModel, &s.models
		}
		if valid == nil || !valid.MatchString(name) {
			return s, fmt.Errorf("dataset %q: OWNER/NAME is needed, or competition:NAME, notebook:OWNER/NAME, model:OWNER/MODEL/FRAMEWORK/VARIATION/VERSION", text)
		}
		*to = append(*to, name)
		s.asked = append(s.asked, text)
		s.names = append(s.names, strings.Split(name, "/")[element])
	}
	return s, nil
}

// Attach implements sandbox.Backend. A handle without data is of a run whose
// start was not seen to its end: it is looked for by its name.
func (b *Backend) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != name {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("a run of engine %s", h.Backend))
	}
	if len(h.Data) == 0 {
		return b.find(ctx, h.ID)
	}
	var data handle
	if err := json.Unmarshal(h.Data, &data); err != nil || h.Version != handleVersion {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("run %s was written down by another version of this program", h.ID))
	}
	if !validName.MatchString(data.User) || !validName.MatchString(data.Slug) {
		return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("the record of run %s is damaged", h.ID))
	}
	return newRun(b, h.ID, &data), nil
}

// find looks for a run of which only the ID is known.
func (b *Backend) find(ctx context.Context, id string) (sandbox.Run, error) {
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

// absent says whether an answer means that there is no such script: Kaggle
// denies what does not exist.
func absent(err error) bool {
	var answer *apiError
	return errors.As(err, &answer) && (answer.status == http.StatusNotFound || answer.status == http.StatusForbidden)
}

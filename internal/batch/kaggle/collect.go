package kaggle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
)

// listing is the output of a session that has ended.
type listing struct {
	files map[string]string // URLs by name
	log   string
}

// list reads all pages of a session's output.
func (b *Service) list(ctx context.Context, about kernelRequest) (*listing, error) {
	about.PageSize = 100
	l := &listing{files: map[string]string{}}
	for page := 0; ; page++ {
		var answer outputAnswer
		if err := b.client.call(ctx, callOutput, about, &answer); err != nil {
			return nil, err
		}
		if page == 0 {
			l.log = answer.Log
		}
		for _, f := range answer.Files {
			if len(l.files) < maxFiles+3 {
				l.files[f.FileName] = f.URL
			}
		}
		if answer.NextPageToken == "" || answer.NextPageToken == about.PageToken || page > maxFiles/20 {
			return l, nil
		}
		about.PageToken = answer.NextPageToken
	}
}

// collect returns the outcome of a session that has ended.
func (r *run) collect(ctx context.Context, s statusAnswer) (*outcome, error) {
	h := r.now()
	const looks = 4 // files may be there a little later than the status says
	var l *listing
	for look := 1; ; look++ {
		var err error
		if l, err = r.backend.list(ctx, r.about()); err != nil {
			if absent(err) {
				return r.lost(), nil
			}
			if errors.Is(err, errTooLarge) {
				return &outcome{left: true, result: batch.Result{
					End: batch.Failed, ExitCode: -1, Notes: h.Notes,
					Error: "the session's log is too large to be read, and what it left stays at " + h.URL,
				}}, nil
			}
			return nil, fail("result", nil, fmt.Errorf("%w. The run has ended: %s", explain(err), h.URL))
		}
		if _, ok := l.files[resultFile]; ok || look == looks || s.Status != statusComplete {
			break
		}
		if err := wait(ctx, r.backend.opts.Poll); err != nil {
			return nil, err
		}
	}
	o, err := r.decoded(ctx, l, &h)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if o == nil {
		o = r.undecided(s, l, &h, err)
	}
	if err != nil { // the only copy is not removed
		o.left = true
		o.result.Notes = append(slices.Clone(o.result.Notes), "what it left stays at "+h.URL)
	}
	return o, nil
}

func (r *run) lost() *outcome {
	h := r.now()
	return &outcome{result: batch.Result{End: batch.Lost, ExitCode: -1, Error: "Kaggle has no such run any more: " + h.URL, Notes: h.Notes}}
}

// decoded returns the outcome in the result file; nil if there is no usable one.
func (r *run) decoded(ctx context.Context, l *listing, h *handle) (*outcome, error) {
	if l.files[resultFile] == "" {
		return nil, nil
	}
	var result *wireResult
	var streams [2][]byte
	for try := 1; ; try++ { // a damaged download is repeated
		var data bytes.Buffer
		_, err := r.backend.fetch(ctx, r.about(), l, resultFile, maxResult(h.OutputBytes), func() (writer, error) {
			data.Reset()
			return discardClose{&data}, nil
		})
		if err != nil {
			return nil, fmt.Errorf("its result file could not be fetched: %w", err)
		}
		result, streams, err = decodeResult(&data, r.id, h.CodeSHA256, h.OutputBytes)
		if err == nil {
			break
		}
		const tries = 3
		if try == tries {
			return nil, fmt.Errorf("its result file is invalid: %w", err)
		}
		if err := wait(ctx, r.backend.opts.Poll); err != nil {
			return nil, err
		}
		if fresh, err := r.backend.list(ctx, r.about()); err == nil && fresh.files[resultFile] != "" {
			l.files = fresh.files
		}
	}
	o := &outcome{result: result.batchResult(streams, h)}
	var left int
	var bytes int64
	o.files, left, bytes = choose(result.Files, r.backend.opts.MaxOutput)
	kept := o.files[:0]
	unlisted := 0
	for _, f := range o.files {
		file := f.path
		if f.packed {
			file = archiveFile
		}
		if l.files[file] == "" {
			unlisted++
			continue
		}
		kept = append(kept, f)
	}
	o.files = kept
	if unlisted > 0 {
		o.result.Notes = append(o.result.Notes, fmt.Sprintf("%d files do not come back: Kaggle did not keep them", unlisted))
	}
	if result.FilesLeft {
		o.left = true
		o.result.Notes = append(o.result.Notes, "not all files are listed; the others stay at "+h.URL)
	}
	if left > 0 {
		o.left = true
		o.result.Notes = append(o.result.Notes, fmt.Sprintf("%d files (%d MB) do not come back, for they are over kaggle.maxOutput or have names that cannot be used; they stay at %s", left, bytes>>20, h.URL))
	}
	if l.files[manifestFile] != "" {
		o.files = append(o.files, wantedFile{path: manifestFile, size: -1})
	}
	if h.Keep {
		o.result.Notes = append(o.result.Notes, "kept at "+h.URL)
	}
	return o, nil
}

// undecided returns the outcome of a session that left no result: it was ended
// from outside, or crashed.
func (r *run) undecided(s statusAnswer, l *listing, h *handle, why error) *outcome {
	o := &outcome{result: batch.Result{End: batch.Failed, ExitCode: -1, Notes: h.Notes}}
	b := &o.result
	split := newSplitter(r.id)
	var last float64
	streams := [2]strings.Builder{}
	for _, e := range decodeLog(l.log) {
		last = max(last, sane(e.Time))
		stdout, stderr := split.take(e)
		for i, text := range []string{stdout, stderr} {
			room := max(0, h.OutputBytes-int64(streams[i].Len()))
			if over := int64(len(text)) - room; over > 0 {
				text = text[:room]
				*[]*int64{&b.Truncated.Stdout, &b.Truncated.Stderr}[i] += over
			}
			streams[i].WriteString(text)
		}
	}
	b.Stdout, b.Stderr = []byte(streams[0].String()), []byte(streams[1].String())
	b.Ran = seconds(last)
	message := clean(s.FailureMessage, nil)
	longest := h.Until.Sub(h.NotAfter)
	switch {
	case s.Status == statusCancelled:
		b.End, b.Error = batch.Cancelled, "the session was stopped at Kaggle"
	case seconds(last) >= longest-time.Minute || strings.Contains(strings.ToLower(message), "maximum run time") || strings.Contains(strings.ToLower(message), "time limit"):
		b.End, b.Error = batch.TimedOut, "Kaggle ended the session at its time limit"
	case errors.Is(why, errTooLarge):
		b.Error = "the run left a result that is too large"
	case why != nil:
		b.Error = "the run ended, and " + why.Error()
	case s.Status == statusComplete:
		b.Error = "Kaggle calls the session complete, and it left no result: the code may have removed it"
	default:
		b.Error = "Kaggle's session crashed before the run could leave a result (often for lack of memory)"
	}
	if message != "" {
		b.Error += "; Kaggle says: " + message
	}
	// Whatever files there are, within the bounds.
	var files []wireFile
	for name := range l.files {
		if !isOurs(name) {
			files = append(files, wireFile{Path: name})
		}
	}
	sortFiles(files)
	var left int
	if o.files, left, _ = choose(files, r.backend.opts.MaxOutput); left > 0 {
		o.left = true
		b.Notes = append(slices.Clone(b.Notes), fmt.Sprintf("%d files have names that cannot be used; they stay at %s", left, h.URL))
	}
	for i := range o.files {
		o.files[i].size = -1
	}
	return o
}

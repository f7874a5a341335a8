package runpod

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const (
	maxFiles = 1000
	maxNotes = 20
)

// capital begins a sentence.
func capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

// conclude makes the result of a job that has ended.
func (r *run) conclude(_ context.Context, st *jobStatus) (batch.Result, error) {
	res := batch.Result{ExitCode: -1, Queued: st.DelayTime.millis(), Ran: st.ExecutionTime.millis()}
	out, shape := decodeOutput(st.Output)
	if out != nil {
		r.take(&res, out)
	}
	switch status := string(st.Status); status {
	case completed:
		if out == nil {
			res.End, res.Error = batch.Failed, "the worker answered "+shape+", and not stdout, stderr and return_code: is endpoint "+r.spec.Endpoint+" one for Python code?"
		}
	case cancelled:
		res.End, res.Error = batch.Cancelled, "the run was cancelled"
		if r.why != "" {
			res.End, res.Error = r.why, r.whyText
		}
	case timedOut:
		res.End, res.Error = batch.TimedOut, fmt.Sprintf("the run took longer than %v, and RunPod ended it", r.spec.Timeout)
	case failed:
		text, lost := failureText(st.Error)
		res.End, res.Error = batch.Failed, "the run failed at RunPod"+after(": ", text)
		if r.died = lost; lost {
			res.Error += "; its worker died each time that it was tried. Code that takes more memory than the worker has ends like this"
		}
		if strings.EqualFold(text, "Execution timed out") { // as the first workers say it
			res.End, res.Error = batch.TimedOut, "the worker ended the run: its own limit on time was up"
		}
	}
	r.verify(&res, out)
	if res.End != batch.Exited {
		res.ExitCode = -1
	}
	r.describe(&res, st)
	return r.end(res, nil)
}

// decodeOutput reads a job's output; where it is not one of ours, shape says
// in words what it is. A worker that aggregates its stream answers a list,
// whose last element is the result.
func decodeOutput(raw json.RawMessage) (out *job.Output, shape string) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, "nothing"
	}
	switch raw[0] {
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return nil, "an empty list"
		}
		if out, _ = decodeOutput(list[len(list)-1]); out == nil {
			return nil, "a list"
		}
		return out, ""
	case '{':
	default:
		return nil, line(string(raw), 200)
	}
	var m struct {
		Stdout     *string `json:"stdout"`
		Stderr     *string `json:"stderr"`
		ReturnCode *number `json:"return_code"`
		Sallyport  *job.Answer
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, "an object that cannot be read (" + line(err.Error(), 100) + ")"
	}
	if a := m.Sallyport; m.ReturnCode == nil && (a == nil || a.End == "" && a.Report == nil) {
		return nil, line(string(raw), 200)
	}
	out = &job.Output{Sallyport: m.Sallyport, ReturnCode: -1}
	if m.Stdout != nil {
		out.Stdout = *m.Stdout
	}
	if m.Stderr != nil {
		out.Stderr = *m.Stderr
	}
	if m.ReturnCode != nil {
		out.ReturnCode = int(max(min(*m.ReturnCode, 1<<31), -1<<31))
	}
	return out, ""
}

// take fills in what the worker answered.
func (r *run) take(res *batch.Result, out *job.Output) {
	limit := r.spec.OutputBytes
	res.Stdout, res.Truncated.Stdout = cut(out.Stdout, limit)
	res.Stderr, res.Truncated.Stderr = cut(out.Stderr, limit)
	res.ExitCode = out.ReturnCode
	a := out.Sallyport
	if a == nil || r.spec.Plain {
		return
	}
	r.answer = a
	if t := a.Truncated; t != nil {
		res.Truncated.Stdout += max(t.Stdout, 0)
		res.Truncated.Stderr += max(t.Stderr, 0)
	}
	if a.RanMs > 0 && a.RanMs < int64(maxTimeout/time.Millisecond) {
		res.Ran = time.Duration(a.RanMs) * time.Millisecond
	}
	if u := a.Usage.Usage(); u != nil {
		u.CPUModel, u.GPUModel, u.Region = line(u.CPUModel, 100), line(u.GPUModel, 100), line(u.Region, 40)
		res.Usage = u
	}
	switch text := line(a.Error, 2000); a.End {
	case "":
	case job.EndTimedOut:
		res.End, res.Error = batch.TimedOut, or(text, fmt.Sprintf("the code took longer than %v", r.spec.Timeout))
	case job.EndCancelled:
		res.End, res.Error = batch.Cancelled, or(text, "the run was cancelled at the worker")
	case job.EndRefused:
		res.End, res.Error = batch.Failed, "the worker refused to run the code: "+or(text, "it does not say why")
	default:
		res.End, res.Error = batch.Failed, or(text, "the worker could not run the code")
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func cut(s string, limit int64) ([]byte, int64) {
	if int64(len(s)) <= limit {
		return []byte(s), 0
	}
	return []byte(s[:limit]), int64(len(s)) - limit
}

// verify holds what the worker says of the place where the code ran against
// what was asked for. What ran with less is not passed off as a good run.
func (r *run) verify(res *batch.Result, out *job.Output) {
	if r.probe || r.spec.Plain || out == nil {
		return
	}
	a := out.Sallyport
	wrong := ""
	switch {
	case !speaks(a):
		wrong = "the worker that ran the code does not say how it isolated it and which limits it enforced, unlike the one that was asked before; runpod.acceptUnknownWorker accepts that"
		if r.b.opts.AcceptUnknown {
			wrong = ""
		}
		r.b.remember(r.spec.Endpoint, nil, "")
	case a.Run != "" && a.Run != r.id:
		wrong = "the worker answered for another run"
	case a.End == job.EndRefused: // nothing ran
		r.b.remember(r.spec.Endpoint, a, "")
	default:
		require := map[sandbox.Resource]sandbox.Enforcement{}
		for name, level := range r.spec.Require {
			require[sandbox.Resource(name)], _ = job.ParseEnforcement(level)
		}
		isolation, _ := job.ParseIsolation(r.spec.MinIsolation)
		if lacks := unmet(a.Report, isolation, require); lacks != "" {
			wrong = "the code ran with less than the policy demands: " + lacks
		}
		r.b.remember(r.spec.Endpoint, a, "")
	}
	if wrong != "" {
		res.End, res.Error = batch.Failed, wrong
		return
	}
	if a != nil && a.Run == r.id {
		files, refused := clean(a.Files)
		if len(refused) > 0 {
			res.Notes = append(res.Notes, fmt.Sprintf("left out for its name: %s", strings.Join(refused, ", ")))
		}
		r.mu.Lock()
		r.files = files
		r.mu.Unlock()
	}
}

// clean are the files whose paths can be used; the others are listed by name.
func clean(files []job.File) (ok []job.File, refused []string) {
	taken := map[string]bool{} // paths, true for files
	for _, f := range files {
		good := len(ok) < maxFiles && filepath.IsLocal(filepath.FromSlash(f.Path)) && path.Clean(f.Path) == f.Path && f.Path != "." &&
			!strings.ContainsAny(f.Path, `\:`) && printable(f.Path)
		if _, there := taken[f.Path]; there {
			good = false
		}
		for dir := path.Dir(f.Path); good && dir != "."; dir = path.Dir(dir) {
			good = !taken[dir]
		}
		if !good {
			if len(refused) < 5 {
				refused = append(refused, fmt.Sprintf("%q", line(f.Path, 100)))
			}
			continue
		}
		taken[f.Path] = true
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			taken[dir] = false
		}
		ok = append(ok, f)
	}
	return ok, refused
}

// printable: nothing that a terminal or a file system takes for something else.
func printable(s string) bool {
	return utf8.ValidString(s) && len(s) <= 1000 && !strings.ContainsFunc(s, unicode.IsControl)
}

// describe adds what a reader should know besides.
func (r *run) describe(res *batch.Result, st *jobStatus) {
	note := func(format string, args ...any) { res.Notes = append(res.Notes, fmt.Sprintf(format, args...)) }
	a := r.answer
	where := "ran on RunPod endpoint " + r.spec.Endpoint
	if id := line(string(st.WorkerID), 60); id != "" {
		where += ", worker " + id
	}
	switch {
	case st.Status != completed || a != nil && a.End == job.EndRefused: // nothing ran
	case speaks(a):
		said := a.Report.Report(Name)
		where += fmt.Sprintf(", engine %s (isolation: %s)", line(a.Report.Engine, 40), said.Isolation)
		note("%s", where)
	default:
		note("%s; its worker does not say how it isolates code, as runpod.acceptUnknownWorker accepts", where)
	}
	deliveries := max(int(min(st.Retries, 1000))+1, r.requeued+1, len(r.attempts))
	switch {
	case a != nil && a.Redelivered:
		note("RunPod delivered the run more than once; the worker that had it already did not run it again")
	case deliveries > 1:
		note("RunPod delivered the run %d times, because it lost a worker: the code may have run more than once, or in part", deliveries)
	case r.twice:
		note("RunPod has the run more than once: the code may have run more than once")
	}
	if a == nil {
		return
	}
	for i, o := range a.LeftOut {
		if i == 5 {
			note("and %d files more", len(a.LeftOut)-i)
			break
		}
		note("%s (%d bytes) was too large to come back", line(o.Path, 200), o.Size)
	}
	for i, n := range a.Notes {
		if i == maxNotes {
			break
		}
		note("%s", line(n, 500))
	}
}

// failureText is a failed job's error for people; lost, that no worker
// survived it. The SDK of Python workers packs exceptions into JSON.
func failureText(raw json.RawMessage) (text string, lost bool) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = string(raw)
	}
	var e struct {
		Type    string `json:"error_type"`
		Message string `json:"error_message"`
	}
	if json.Unmarshal([]byte(s), &e) == nil && (e.Type != "" || e.Message != "") {
		kind := strings.TrimSuffix(strings.TrimPrefix(e.Type, "<class '"), "'>")
		return line(or(kind, "exception")+": "+e.Message, 1000), false
	}
	lower := strings.ToLower(s)
	return line(s, 1000), strings.Contains(lower, "worker exited") || strings.Contains(lower, "attempts")
}

// Fetch implements batch.Run: files came with the result. Of a run that
// was attached to, that is asked for again.
func (r *run) Fetch(ctx context.Context, dir *os.Root) ([]batch.File, error) {
	if _, err := r.Result(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	files := r.files
	r.mu.Unlock()
	var written []batch.File
	for _, f := range files {
		if err := dir.MkdirAll(filepath.FromSlash(path.Dir(f.Path)), 0o700); err != nil {
			return nil, r.b.fail("fetch", nil, "%w", err)
		}
		if err := dir.WriteFile(filepath.FromSlash(f.Path), f.Data, 0o600|fs.FileMode(f.Mode&0o100)); err != nil {
			return nil, r.b.fail("fetch", nil, "%w", err)
		}
		written = append(written, batch.File{Path: f.Path, Size: int64(len(f.Data))})
	}
	return written, nil
}

// Sweep implements batch.Service. It depends on what RunPod lists of an
// endpoint's requests, which it does not document: where that does not show
// our jobs, nothing is found, and their own limits end them.
func (b *Service) Sweep(ctx context.Context, age time.Duration, known func(id string) bool) ([]string, error) {
	if b.opts.Endpoint == "" {
		return nil, nil
	}
	a := b.api(b.opts.Endpoint)
	answer, t := a.ask(ctx, 10*time.Second, "requests", "", nil)
	if t != nil {
		if t.status == 404 || t.status == 405 || t.status == 400 {
			return nil, nil
		}
		return nil, b.explain("sweep", a.endpoint, t)
	}
	owner := b.instance()
	var swept []string
	for _, j := range listed(answer) {
		if j.owner != owner || final(j.status) || j.sent.IsZero() || time.Since(j.sent) < age || known(j.run) {
			continue
		}
		if _, t := a.ask(ctx, cancelWait, "cancel", j.id, nil); t != nil && t.status != 404 {
			return swept, b.explain("sweep", a.endpoint, t)
		}
		swept = append(swept, line(j.run, 63))
	}
	return swept, nil
}

package kaggle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
)

const (
	maxLogLine   = 4 << 20
	maxLogStream = 64 << 20 // of one connection
	logPause     = time.Second
	endOfLog     = "END_OF_LOG"
)

// logEvent is a piece of a session's log.
type logEvent struct {
	Stream string  `json:"stream_name"`
	Time   float64 `json:"time"`
	Data   string  `json:"data"`
}

var errEndOfLog = errors.New("the log has ended")

// readEvents reads server-sent events and calls do with each, until the
// service reports the end of the log (nil) or the connection ends. errTooLarge
// means that another connection would not get further.
func readEvents(from io.Reader, do func(logEvent)) error {
	bound := &io.LimitedReader{R: from, N: maxLogStream}
	lines := bufio.NewScanner(bound)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == endOfLog {
			return nil
		}
		var e logEvent
		if json.Unmarshal(data, &e) == nil {
			do(e)
		}
	}
	err := lines.Err()
	switch {
	case bound.N <= 0, errors.Is(err, bufio.ErrTooLong):
		return errTooLarge
	case err != nil:
		return err
	}
	return io.ErrUnexpectedEOF
}

// decodeLog reads the log of a session that has ended: an array, or nothing.
func decodeLog(text string) []logEvent {
	var events []logEvent
	if json.Unmarshal([]byte(text), &events) != nil {
		return nil
	}
	return events
}

// A splitter finds what the program wrote in a session's log, which has lines
// of Kaggle's own before and after. The bootstrap marks in each stream where
// the program begins and ends.
type splitter struct {
	begin, end     string
	stdout, stderr part
}

// part is the position in a stream.
type part struct{ begun, ended bool }

func newSplitter(id string) *splitter {
	return &splitter{begin: "[sallyport " + id + "] the code begins", end: "[sallyport " + id + "] the code has ended"}
}

// take returns the program's part of an event.
func (s *splitter) take(e logEvent) (stdout, stderr string) {
	switch e.Stream {
	case "stdout":
		return s.cut(&s.stdout, e.Data), ""
	case "stderr":
		return "", s.cut(&s.stderr, e.Data)
	}
	return "", ""
}

func (s *splitter) cut(p *part, data string) string {
	if p.ended {
		return ""
	}
	if !p.begun {
		_, after, ok := strings.Cut(data, s.begin)
		if !ok {
			return ""
		}
		p.begun, data = true, strings.TrimPrefix(after, "\n")
	}
	data, _, p.ended = strings.Cut(data, s.end)
	return data
}

// follower passes the live log on to the observer of a run. Its methods are
// called by one goroutine.
type follower struct {
	run     *run
	cancel  context.CancelFunc
	done    sync.WaitGroup
	started bool

	// Of what was passed on; read when the follower has stopped.
	stdout, stderr bytes.Buffer
	split          *splitter
	seen           int
}

// start starts following, once.
func (f *follower) start(ctx context.Context) {
	if f.started {
		return
	}
	f.started = true
	f.split = newSplitter(f.run.id)
	ctx, f.cancel = context.WithCancel(ctx)
	f.done.Go(func() { f.follow(ctx) })
}

// stop stops following.
func (f *follower) stop() {
	if f.cancel != nil {
		f.cancel()
		f.done.Wait()
	}
}

// follow streams the log until it ends. After a broken connection, the service
// starts from the beginning again.
func (f *follower) follow(ctx context.Context) {
	pause := min(logPause, f.run.backend.opts.Poll)
	for ctx.Err() == nil {
		seen := f.seen
		err := f.stream(ctx)
		if errors.Is(err, errEndOfLog) || errors.Is(err, errTooLarge) {
			return
		}
		var answer *apiError
		if errors.As(err, &answer) && (answer.status == http.StatusNotFound || answer.status == http.StatusForbidden || answer.status == http.StatusUnauthorized) {
			return // no live log: the result contains everything
		}
		if f.seen > seen {
			pause = min(logPause, f.run.backend.opts.Poll)
		}
		if wait(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// stream reads the log once from its beginning.
func (f *follower) stream(ctx context.Context) error {
	body, kind, err := f.run.backend.client.openLog(ctx, f.run.about())
	if err != nil {
		return err
	}
	defer body.Close()
	n := 0
	take := func(e logEvent) {
		if n++; n <= f.seen {
			return
		}
		f.seen = n
		f.pass(e)
	}
	if kind == "text/event-stream" {
		if err := readEvents(body, take); err != nil {
			return err
		}
		return errEndOfLog
	}
	// The session has ended meanwhile.
	data, err := io.ReadAll(io.LimitReader(body, maxLogStream))
	if err != nil {
		return err
	}
	for _, e := range decodeLog(string(data)) {
		take(e)
	}
	return errEndOfLog
}

func (f *follower) pass(e logEvent) {
	const most = maxLogStream / 4
	stdout, stderr := f.split.take(e)
	p := batch.Progress{Stdout: []byte(stdout), Stderr: []byte(stderr)}
	if f.stdout.Len()+f.stderr.Len() > most {
		return
	}
	f.stdout.WriteString(stdout)
	f.stderr.WriteString(stderr)
	p.Running = f.split.stdout.begun || f.split.stderr.begun
	f.run.tell(p)
}

// rest reports the part of a result that the live log has not shown.
func (f *follower) rest(b *batch.Result) {
	var p batch.Progress
	if after, ok := bytes.CutPrefix(b.Stdout, f.stdout.Bytes()); ok {
		p.Stdout = after
	}
	if after, ok := bytes.CutPrefix(b.Stderr, f.stderr.Bytes()); ok {
		p.Stderr = after
	}
	f.run.tell(p)
}

// openLog requests the live log. It sends no credentials to an address that the
// service redirects to.
func (c *client) openLog(ctx context.Context, about kernelRequest) (io.ReadCloser, string, error) {
	cred, err := c.credential(ctx, "")
	if err != nil {
		return nil, "", err
	}
	link := c.base.JoinPath("v1/kernels/logs/stream", about.UserName, about.KernelSlug)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, link.String(), nil)
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Accept", "text/event-stream, */*")
	request.Header.Set("User-Agent", "sallyport")
	cred.sign(request)
	response, err := c.api.Do(request)
	if err != nil {
		return nil, "", hide(err, cred)
	}
	if to := response.Header.Get("Location"); to != "" && response.StatusCode >= 300 && response.StatusCode < 400 {
		response.Body.Close()
		if response, err = c.follow(ctx, link, to); err != nil {
			return nil, "", err
		}
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, "", &apiError{call: "the live log", status: response.StatusCode}
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return response.Body, kind, nil
}

// follow follows a redirect, without credentials.
func (c *client) follow(ctx context.Context, from *url.URL, to string) (*http.Response, error) {
	next, err := from.Parse(to)
	if err != nil {
		return nil, &refusedError{"the URL of a redirect cannot be read"}
	}
	if err := checkStorage(next, isLoopback(c.base.Hostname())); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, next.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("following a redirect: %w", hide(err, nil))
	}
	request.Header.Set("Accept", "text/event-stream, */*")
	response, err := c.storage.Do(request)
	if err != nil {
		return nil, hide(err, nil)
	}
	return response, nil
}

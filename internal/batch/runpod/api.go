package runpod

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	maxAnswer   = 24 << 20 // RunPod's own limit on results is 20 MB
	maxTrouble  = 64 << 10 // of an answer that is an error
	callTimeout = 45 * time.Second
	slowest     = 64 << 10    // bytes of a job or an answer that a connection carries in a second
	maxHold     = time.Minute // of a Retry-After
)

var (
	validEndpoint = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\z`)
	validJob      = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}\z`)
)

// api speaks the job API of one endpoint.
type api struct {
	base     string // with the endpoint
	endpoint string
	key      func(context.Context) (string, error)
	http     *http.Client
	gates    map[string]*gate
}

// checkURL: https, or this machine.
func checkURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("it is not the address of a service, such as https://api.runpod.ai/v2")
	}
	local := u.Hostname() == "localhost"
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
		local = true
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return "", errors.New("only https is allowed, as the API key goes there; plain http only to this machine")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// trouble is a request that failed.
type trouble struct {
	op     string
	status int           // 0: no answer, or no whole one
	retry  time.Duration // what a Retry-After asked for
	sent   bool          // it may have arrived
	text   string        // what the service said
	err    error
}

func (t *trouble) Error() string {
	switch {
	case t.status == 0:
		return fmt.Sprintf("%s: %v", t.op, t.err)
	case t.text != "":
		return fmt.Sprintf("%s: HTTP %d: %s", t.op, t.status, t.text)
	}
	return fmt.Sprintf("%s: HTTP %d", t.op, t.status)
}

func (t *trouble) Unwrap() error { return t.err }

// instead says what came instead of the answer to a submission.
func (t *trouble) instead() string {
	switch {
	case t.status != 0:
		return fmt.Sprintf("RunPod answered the submission with HTTP %d%s", t.status, after(": ", t.text))
	case errors.Is(t.err, context.DeadlineExceeded):
		return "RunPod did not answer the submission in time"
	case errors.Is(t.err, errTooLarge):
		return "RunPod's answer to the submission is too large to be read"
	}
	return "the connection to RunPod broke before it answered"
}

// passing: it can be otherwise a moment later.
func (t *trouble) passing() bool {
	return t.status == 0 && !errors.Is(t.err, errRefusedHere) || t.status == 408 || t.status == 425 || t.status == 429 || t.status >= 500 || t.status/100 == 2
}

// errRefusedHere marks what this side refuses, such as a redirect.
var errRefusedHere = errors.New("refused")

// MaxFiles bounds the files of one run, in bytes: they come with its result.
const MaxFiles = maxAnswer

// errTooLarge is an answer of more than maxAnswer.
var errTooLarge = fmt.Errorf("%w: the answer is larger than %d MiB", errRefusedHere, maxAnswer>>20)

// call makes one request.
func (a *api) call(ctx context.Context, op, path string, query url.Values, body []byte) ([]byte, *trouble) {
	fail := func(err error) *trouble { return &trouble{op: op, err: err} }
	key, err := a.key(ctx)
	if err != nil {
		return nil, &trouble{op: op, err: fmt.Errorf("%w: %w", errRefusedHere, err)}
	}
	g := a.gates[op]
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, fail(err)
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTimeout+carried(len(body)), func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	method := http.MethodGet
	if op == "run" || op == "runsync" || op == "cancel" {
		method = http.MethodPost
	}
	target := a.base + "/" + op
	if path != "" {
		target += "/" + url.PathEscape(path)
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fail(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, &trouble{op: op, err: inTime(ctx, plainError(err)), sent: mayHaveArrived(err)}
	}
	defer res.Body.Close()
	late.Reset(callTimeout + carried(maxAnswer))
	t := &trouble{op: op, status: res.StatusCode, sent: true}
	if res.StatusCode/100 == 3 {
		t.err = fmt.Errorf("%w: the service redirects to another address, and the API key does not go there", errRefusedHere)
		t.status, t.sent = 0, false // who redirects has done nothing
		return nil, t
	}
	limit := int64(maxAnswer)
	if res.StatusCode/100 != 2 {
		limit = maxTrouble
	}
	var answer []byte
	if op == "requests" && limit == maxAnswer { // it has the inputs of all jobs, of which few words matter
		answer, err = abridged(res.Body, limit)
	} else {
		answer, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	}
	switch {
	case res.StatusCode/100 != 2:
		t.retry = retryAfter(res.Header)
		t.text = said(answer, key)
		if t.retry > 0 && (t.status == 429 || t.status == 503) {
			g.hold(t.retry)
		}
		return nil, t
	case err != nil:
		t.status, t.err = 0, inTime(ctx, plainError(err))
		return nil, t
	case int64(len(answer)) > limit:
		t.status, t.err = 0, errTooLarge
		return nil, t
	case !json.Valid(answer):
		t.text = "the answer is not JSON"
		return nil, t
	}
	return answer, nil
}

// carried is how long a slow connection takes.
func carried(size int) time.Duration { return time.Duration(size) * time.Second / slowest }

// inTime is err, or that there was none left.
func inTime(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// plainError is an error of net/http without the URL, which says nothing.
func plainError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// mayHaveArrived: only what failed before there was a connection certainly has
// not.
func mayHaveArrived(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var addr *net.AddrError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"), errors.As(err, &dns), errors.As(err, &addr),
		errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid):
		return false
	}
	return true
}

func retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return min(time.Duration(min(n, 3600))*time.Second, maxHold)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(time.Until(at), 0), maxHold)
	}
	return 0
}

// said is what an error's body says, in one short line, without the key.
func said(body []byte, key string) string {
	var m struct{ Error, Message, Detail, Title json.RawMessage }
	text := string(body)
	if json.Unmarshal(body, &m) == nil {
		for _, raw := range []json.RawMessage{m.Detail, m.Message, m.Error, m.Title} {
			var s string
			if json.Unmarshal(raw, &s) == nil && s != "" {
				text = s
				break
			}
		}
	} else if strings.Contains(text, "<") {
		return "" // a page of some gateway
	}
	if key != "" {
		text = strings.ReplaceAll(text, key, "***")
	}
	return line(text, 300)
}

// line is a foreign text in one line of printable characters.
func line(s string, limit int) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool { return r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 }), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// ask makes a request that can be made again, and makes it again, as long as
// it fails in a way that passes and not for longer than patience at a stretch.
func (a *api) ask(ctx context.Context, patience time.Duration, op, path string, query url.Values) ([]byte, *trouble) {
	began := time.Now()
	var last *trouble
	over := func() *trouble {
		if last != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return last // what there was no time left to get over
		}
		return &trouble{op: op, err: ctx.Err()}
	}
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		answer, t := a.call(ctx, op, path, query, nil)
		if t == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, over()
		}
		if last = t; !t.passing() || time.Since(began) >= patience {
			return nil, t
		}
		if sleep(ctx, max(jitter(pause), t.retry)) != nil {
			return nil, over()
		}
	}
}

// jitter keeps runs that began together from asking together.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}

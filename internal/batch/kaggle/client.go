package kaggle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	requestTimeout = 60 * time.Second
	maxAnswer      = 96 << 20 // a session's log is part of one
	maxMessage     = 600
	attempts       = 6
	firstPause     = 500 * time.Millisecond
	maxRetryAfter  = 60 * time.Second
	refreshEarly   = 5 * time.Minute
)

// apiError is an answer that reports a failure.
type apiError struct {
	call       string
	status     int
	message    string
	retryAfter time.Duration
}

func (e *apiError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("Kaggle answered %d %s to %s", e.status, http.StatusText(e.status), e.call)
	}
	return fmt.Sprintf("Kaggle answered %d to %s: %s", e.status, e.call, e.message)
}

// lostError means that a request was sent, but it is unknown whether it had an
// effect.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the answer was lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// client sends requests to the API, and to the storage whose URLs it returns.
type client struct {
	base    *url.URL
	api     *http.Client
	storage *http.Client
	sources Sources
	pause   time.Duration

	mu    sync.Mutex // held while credentials are looked for
	found *credential
}

func newClient(base *url.URL, opts Options) *client {
	return &client{
		base: base, api: apiClient(base, opts.Proxy), storage: storageClient(base, opts.Proxy),
		sources: opts.Credentials, pause: min(firstPause, opts.Poll),
	}
}

func (c *client) close() {
	c.api.CloseIdleConnections()
	c.storage.CloseIdleConnections()
}

// user returns the name of the user to whom the credentials belong.
func (c *client) user(ctx context.Context) (string, error) {
	cred, err := c.credential(ctx, "")
	if err != nil {
		return "", err
	}
	return cred.username, nil
}

// credential returns the credential to send, with the user's name filled in.
// Refused is the OAuth token that was just refused, if any: it is not returned
// again.
func (c *client) credential(ctx context.Context, refused string) (*credential, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cred := c.found
	if cred == nil {
		found, err := c.sources.find()
		if err != nil {
			return nil, err
		}
		cred = &found
	}
	now := *cred
	if now.refresh != "" && (now.token == "" || now.token == refused || !now.expires.IsZero() && time.Until(now.expires) < refreshEarly) {
		var answer struct {
			Token     string `json:"token"`
			ExpiresIn int64  `json:"expiresIn"`
			UserName  string `json:"userName"`
		}
		request := map[string]string{"refreshToken": now.refresh, "apiVersion": "API_VERSION_V1", "expirationDuration": "43200s"}
		if err := c.retry(ctx, func() error { return c.once(ctx, callRefresh, request, &answer, &now, false) }); err != nil {
			return nil, fmt.Errorf("the OAuth token of %s could not be renewed (`kaggle auth login` makes a new one): %w", now.source, err)
		}
		now.token, now.expires = answer.Token, time.Now().Add(time.Duration(min(answer.ExpiresIn, 1<<20))*time.Second)
		if now.username == "" {
			now.username = answer.UserName
		}
	}
	if now.username == "" {
		var answer struct {
			Active   bool   `json:"active"`
			Username string `json:"username"`
		}
		err := c.retry(ctx, func() error {
			return c.once(ctx, callIntrospect, map[string]string{"token": now.token}, &answer, &now, true)
		})
		if err != nil {
			return nil, err
		}
		if !answer.Active || answer.Username == "" {
			return nil, &apiError{call: "IntrospectToken", status: http.StatusUnauthorized, message: "the token of " + now.source + " is not active (expired, or revoked)"}
		}
		now.username = answer.Username
	}
	if !validName().MatchString(now.username) {
		return nil, fmt.Errorf("the user name %q from %s is not valid at Kaggle", now.username, now.source)
	}
	c.found = &now
	return &now, nil
}

// call makes a call that is safe to repeat, and retries it.
func (c *client) call(ctx context.Context, call string, in, out any) error {
	return c.retry(ctx, func() error { return c.authorized(ctx, call, in, out) })
}

// callOnce makes a call that must not be repeated. A [lostError] means that it
// may have taken effect; any other error, that it did not.
func (c *client) callOnce(ctx context.Context, call string, in, out any) error {
	pause := c.pause
	for try := 1; ; try++ {
		err := c.authorized(ctx, call, in, out)
		var answer *apiError
		switch {
		case err == nil || try == attempts:
			return err
		case neverSent(err):
		case errors.As(err, &answer) && answer.status == http.StatusTooManyRequests:
		default:
			return err
		}
		if err := wait(ctx, after(err, &pause)); err != nil {
			return err
		}
	}
}

// retry repeats a request that fails for a temporary reason.
func (c *client) retry(ctx context.Context, do func() error) error {
	pause := c.pause
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == attempts || !passing(err) || ctx.Err() != nil {
			return err
		}
		if wait(ctx, after(err, &pause)) != nil {
			return err
		}
	}
}

// passing reports whether an error is probably temporary.
func passing(err error) bool {
	var answer *apiError
	if errors.As(err, &answer) {
		return answer.status == http.StatusTooManyRequests || answer.status == http.StatusRequestTimeout || answer.status >= 500
	}
	var refusal *refusedError
	return !errors.As(err, &refusal) && !errors.Is(err, errNoCredentials) && !errors.Is(err, errTooLarge)
}

// after returns how long to wait before the next attempt.
func after(err error, pause *time.Duration) time.Duration {
	now := *pause + time.Duration(rand.Int64N(int64(*pause)/4+1))
	*pause = min(*pause*17/10, 30*time.Second)
	var answer *apiError
	if errors.As(err, &answer) && answer.retryAfter > 0 {
		now = answer.retryAfter
	}
	return now
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// authorized makes one attempt. It renews refused credentials once.
func (c *client) authorized(ctx context.Context, call string, in, out any) error {
	cred, err := c.credential(ctx, "")
	if err != nil {
		return err
	}
	err = c.once(ctx, call, in, out, cred, true)
	var answer *apiError
	if !errors.As(err, &answer) || answer.status != http.StatusUnauthorized {
		return err
	}
	if cred.refresh == "" {
		c.forget(cred) // the user may replace them
		return err
	}
	if cred, err = c.credential(ctx, cred.token); err != nil {
		return err
	}
	return c.once(ctx, call, in, out, cred, true)
}

// forget makes the next call look for credentials again, after these were refused.
func (c *client) forget(refused *credential) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == refused {
		c.found = nil
	}
}

// once sends one request.
func (c *client) once(ctx context.Context, call string, in, out any, cred *credential, sign bool) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath("v1", call).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "sallyport")
	if sign {
		cred.sign(request)
	}
	short := call[strings.LastIndexByte(call, '/')+1:]
	response, err := c.api.Do(request)
	if err != nil {
		err = hide(err, cred)
		if neverSent(err) {
			return fmt.Errorf("no connection to Kaggle: %w", err)
		}
		return &lostError{fmt.Errorf("%s: %w", short, err)}
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	failed := answerError(short, response, data, cred)
	switch {
	case failed != nil && response.StatusCode >= 500:
		return &lostError{failed} // a gateway may report this although the call took effect
	case failed != nil:
		return failed
	case err != nil:
		return &lostError{fmt.Errorf("%s: %w", short, hide(err, cred))}
	case len(data) > maxAnswer:
		return &lostError{fmt.Errorf("the answer to %s: %w: %d MB", short, errTooLarge, maxAnswer>>20)}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &lostError{fmt.Errorf("%s: the answer cannot be read: %w", short, err)}
	}
	return nil
}

// answerError returns the error that an answer reports, if any. An answer with
// status 200 may report one in its body.
func answerError(call string, response *http.Response, data []byte, cred *credential) error {
	var body struct {
		Code    float64         `json:"code"`
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	var inner struct {
		Code    float64 `json:"code"`
		Message string  `json:"message"`
	}
	if json.Unmarshal(data, &body) == nil && json.Unmarshal(body.Error, &inner) == nil && inner.Code > 0 {
		body.Code, body.Message = inner.Code, inner.Message
	}
	status := response.StatusCode
	if status == http.StatusOK {
		if body.Code < 400 || body.Code > 599 {
			return nil
		}
		status = int(body.Code)
	}
	e := &apiError{call: call, status: status, message: clean(body.Message, cred)}
	if status >= 300 && status < 400 {
		e.message = "a redirect, which calls with credentials do not follow"
	}
	if s, err := strconv.ParseFloat(response.Header.Get("Retry-After"), 64); err == nil && s >= 0 {
		e.retryAfter = min(time.Duration(min(s, 3600)*float64(time.Second)), maxRetryAfter)
	}
	return e
}

// sign adds the credentials to a request to the API.
func (c *credential) sign(r *http.Request) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	} else if c.key != "" {
		r.SetBasicAuth(c.username, c.key)
	}
}

// clean prepares a message of the service for display.
func clean(message string, cred *credential) string {
	message = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(message, ""))
	if cred != nil {
		for _, s := range cred.secrets() {
			message = strings.ReplaceAll(message, s, "***")
		}
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return strings.TrimSpace(message)
}

// hide removes the URL, whose query may contain a signature, and all secrets
// from an error.
func hide(err error, cred *credential) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if cred != nil {
		for _, s := range cred.secrets() {
			if strings.Contains(err.Error(), s) {
				return errors.New(clean(err.Error(), cred))
			}
		}
	}
	return err
}

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Place is what RunPod sets in a worker's environment.
type Place struct {
	// GetJob, PostOutput, PostStream and Ping are URLs with placeholders.
	GetJob, PostOutput, PostStream, Ping string
	Token                                string
	WorkerID                             string // RUNPOD_POD_ID
	PingEvery                            time.Duration
}

// protocol is the version of RunPod's own worker SDK that these requests match.
const protocol = "1.12.0"

// Times of the protocol.
const (
	pollTimeout = 90 * time.Second // of the long polls
	postTimeout = 60 * time.Second
	maxReply    = 128 << 20 // a batch of jobs
)

// client sends the requests of the protocol.
type client struct {
	place Place
	http  *http.Client
	agent string
	stop  string // the URL of the stop channel; empty if there is none
}

// newClient checks the place. Its URLs come from whoever runs the worker.
func newClient(p Place, h *http.Client, version string) (*client, error) {
	for name, address := range map[string]string{"RUNPOD_WEBHOOK_GET_JOB": p.GetJob, "RUNPOD_WEBHOOK_POST_OUTPUT": p.PostOutput} {
		if address == "" {
			return nil, fmt.Errorf("%s is not set", name)
		}
	}
	for name, address := range map[string]string{"RUNPOD_WEBHOOK_GET_JOB": p.GetJob, "RUNPOD_WEBHOOK_POST_OUTPUT": p.PostOutput,
		"RUNPOD_WEBHOOK_POST_STREAM": p.PostStream, "RUNPOD_WEBHOOK_PING": p.Ping} {
		if address == "" {
			continue
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			return nil, fmt.Errorf("%s is not an HTTP or HTTPS URL", name) // it may hold a key
		}
	}
	c := &client{place: p, http: h,
		agent: fmt.Sprintf("sallyport/%s (%s; %s) RunPod-worker/%s", version, runtime.GOOS, runtime.GOARCH, protocol)}
	take := strings.ReplaceAll(p.GetJob, "$ID", url.PathEscape(p.WorkerID))
	take = strings.ReplaceAll(take, "$RUNPOD_POD_ID", url.PathEscape(p.WorkerID))
	c.place.GetJob = take
	if strings.Contains(take, "/job-take/") {
		c.stop = strings.Replace(take, "/job-take/", "/job-stop/", 1)
	}
	return c, nil
}

// with adds a query to a URL that may already have one.
func with(address, query string) string {
	if strings.Contains(address, "?") {
		return address + "&" + query
	}
	return address + "?" + query
}

// of fills in the worker and the job in a URL.
func (c *client) of(address, jobID string) string {
	address = strings.ReplaceAll(address, "$RUNPOD_POD_ID", url.PathEscape(c.place.WorkerID))
	return strings.ReplaceAll(address, "$ID", url.PathEscape(jobID))
}

// errStatus is a response with a status that the call does not expect.
type errStatus struct {
	status int
	after  time.Duration // Retry-After
}

func (e *errStatus) Error() string { return fmt.Sprintf("HTTP %d", e.status) }

// do sends a request and reads the response. Errors never include the URL,
// because it may contain a secret.
func (c *client) do(ctx context.Context, timeout time.Duration, method, address string, header map[string]string, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, r)
	if err != nil {
		return nil, nil, errors.New("the URL is malformed")
	}
	req.Header.Set("User-Agent", c.agent)
	if c.place.Token != "" {
		req.Header.Set("Authorization", c.place.Token)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err == nil && len(b) > maxReply {
		err = fmt.Errorf("the response has more than %d bytes", maxReply)
	}
	return res, b, err
}

func statusError(res *http.Response) error {
	e := &errStatus{status: res.StatusCode}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = time.Duration(min(s, 600)) * time.Second
	}
	return e
}

// take asks for up to n jobs. It is not an error if there are none.
func (c *client) take(ctx context.Context, n int, batch, working bool) ([]Job, error) {
	address := c.place.GetJob
	if batch {
		address = with(strings.Replace(address, "/job-take/", "/job-take-batch/", 1), "batch_size="+strconv.Itoa(n))
	}
	busy := "job_in_progress=0"
	if working {
		busy = "job_in_progress=1"
	}
	res, b, err := c.do(ctx, pollTimeout, "GET", with(address, busy), map[string]string{"Content-Type": "application/json"}, nil)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusNoContent:
		return nil, nil
	case res.StatusCode != http.StatusOK:
		return nil, statusError(res)
	case kind != "application/json" || len(b) == 0:
		return nil, nil
	}
	return decodeJobs(b)
}

// decodeJobs reads one job or a list of jobs. A job without an ID or an input
// cannot be answered; it is dropped, and an error is returned with the others.
func decodeJobs(b []byte) ([]Job, error) {
	var list []Job
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '[' {
		if err := json.Unmarshal(b, &list); err != nil {
			return nil, fmt.Errorf("decoding jobs: %w", err)
		}
	} else {
		var one Job
		if err := json.Unmarshal(b, &one); err != nil {
			return nil, fmt.Errorf("decoding a job: %w", err)
		}
		list = []Job{one}
	}
	var good []Job
	var err error
	for _, j := range list {
		if j.ID == "" || len(j.ID) > 512 || len(j.Input) == 0 || string(j.Input) == "null" {
			err = errors.New("a job without an id or without an input")
			continue
		}
		good = append(good, j)
	}
	return good, err
}

// stops waits for jobs to stop.
func (c *client) stops(ctx context.Context) ([]string, error) {
	res, b, err := c.do(ctx, pollTimeout, "GET", c.stop, map[string]string{"Content-Type": "application/json"}, nil)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusNoContent:
		return nil, nil
	case http.StatusOK:
	default:
		return nil, statusError(res)
	}
	var list struct {
		JobsToStop []any `json:"jobsToStop"`
	}
	if len(b) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("decoding the list of jobs to stop: %w", err)
	}
	var ids []string
	for _, v := range list.JobsToStop {
		if id, ok := v.(string); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ping reports that the worker is alive, and its current jobs.
func (c *client) ping(ctx context.Context, timeout time.Duration, jobs []string, more url.Values) error {
	query := "runpod_version=" + protocol
	if len(jobs) > 0 {
		query += "&job_id=" + url.QueryEscape(strings.Join(jobs, ","))
	}
	if len(more) > 0 {
		query += "&" + more.Encode()
	}
	res, _, err := c.do(ctx, timeout, "GET", with(c.of(c.place.Ping, ""), query), nil, nil)
	if err == nil && res.StatusCode >= 300 {
		err = statusError(res)
	}
	return err
}

// post sends a job's stream or result.
func (c *client) post(ctx context.Context, address, jobID string, stream bool, body []byte) error {
	res, _, err := c.do(ctx, postTimeout, "POST", with(c.of(address, jobID), "isStream="+strconv.FormatBool(stream)), map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", // although the body is JSON
		"charset":      "utf-8",
		"X-Request-ID": jobID,
	}, body)
	if err == nil && res.StatusCode >= 300 {
		err = statusError(res)
	}
	return err
}

// final reports whether sending again is pointless.
func final(err error) bool {
	var s *errStatus
	if !errors.As(err, &s) {
		return false
	}
	switch s.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

package codecarbon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// maxAnswer bounds an answer.
	maxAnswer = 8 << 20
	// pageSize and maxPages bound what is asked for of a run.
	pageSize = 1000
	maxPages = 100
)

// RunCreate is the body of POST /runs.
type RunCreate struct {
	Timestamp    string   `json:"timestamp"`
	ExperimentID string   `json:"experiment_id"`
	OS           string   `json:"os"`
	Python       string   `json:"python_version"`
	Version      string   `json:"codecarbon_version"`
	CPUs         int      `json:"cpu_count"`
	CPUModel     string   `json:"cpu_model"`
	GPUs         int      `json:"gpu_count"`
	GPUModel     string   `json:"gpu_model"`
	Longitude    *float64 `json:"longitude"`
	Latitude     *float64 `json:"latitude"`
	Region       *string  `json:"region"`
	Provider     *string  `json:"provider"`
	RAM          float64  `json:"ram_total_size"`
	TrackingMode string   `json:"tracking_mode"`
}

// Emission is the body of POST /emissions: what was added since the last one.
type Emission struct {
	Timestamp  string   `json:"timestamp"`
	RunID      string   `json:"run_id"`
	Duration   int64    `json:"duration"` // seconds, at least 1
	Emissions  float64  `json:"emissions_sum"`
	Rate       float64  `json:"emissions_rate"`
	CPUPower   float64  `json:"cpu_power"`
	GPUPower   float64  `json:"gpu_power"`
	RAMPower   float64  `json:"ram_power"`
	CPUEnergy  float64  `json:"cpu_energy"`
	GPUEnergy  float64  `json:"gpu_energy"`
	RAMEnergy  float64  `json:"ram_energy"`
	Energy     float64  `json:"energy_consumed"`
	CPUPercent *float64 `json:"cpu_utilization_percent"`
	GPUPercent *float64 `json:"gpu_utilization_percent"`
	RAMPercent *float64 `json:"ram_utilization_percent"`
	WUE        float64  `json:"wue"`
}

// stamp is a time in the form that CodeCarbon sends.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// sameStamp reports whether two timestamps are the same moment; servers answer
// with or without a zone, which is then UTC.
func sameStamp(a, b string) bool {
	ta, ok := parseStamp(a)
	tb, also := parseStamp(b)
	return ok && also && ta.Truncate(time.Microsecond).Equal(tb.Truncate(time.Microsecond))
}

func parseStamp(s string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// What is known of a request that did not succeed.
var (
	// errLater: it was not taken, and can be sent again.
	errLater = errors.New("not taken now")
	// errUncertain: it may have been taken.
	errUncertain = errors.New("it is not known whether it was taken")
	// errRefused: it was not taken, and never will be as it is.
	errRefused = errors.New("refused")
	// errToken: so will be everything else that is sent with this token.
	errToken = fmt.Errorf("%w: the token is not accepted", errRefused)
)

// Hopeless reports whether an error of Send will be the same next time, unless
// something changes.
func Hopeless(err error) bool {
	return errors.Is(err, errToken) || errors.Is(err, errRefused) && !errors.Is(err, errLater) && !errors.Is(err, errUncertain)
}

// api is a dashboard.
type api struct {
	base  string
	token Secret
	http  *http.Client
}

func newAPI(c *Config) (*api, error) {
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A connection that was left open is one more way not to know whether a
	// request arrived.
	transport.DisableKeepAlives = true
	return &api{base: base, token: c.Token, http: &http.Client{
		Transport: transport, Timeout: requestTimeout,
		// A redirect would take the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// do sends a request and returns what a success answers.
func (a *api) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(raw)
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("x-api-token", a.token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sallyport")
	resp, err := a.http.Do(req)
	if err != nil {
		// The URL is in the error, the token is not.
		kind := errLater
		if sent.Load() {
			kind = errUncertain
		}
		return nil, fmt.Errorf("%s %s: %w: %w", method, path, kind, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		if err != nil && method == http.MethodGet {
			return nil, fmt.Errorf("%s %s: %w: %w", method, path, errLater, err)
		}
		return raw, nil // it was taken, whatever became of the answer
	}
	kind := errRefused
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = errToken
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		kind = errLater
	default:
		if resp.StatusCode >= 500 {
			kind = errUncertain
		}
	}
	return nil, fmt.Errorf("%s %s: %w: status %d%s", method, path, kind, resp.StatusCode, a.said(raw))
}

// said is a short form of what the service says, without our token in it.
func (a *api) said(raw []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(raw), "?")), " ")
	if t := a.token.Reveal(); t != "" {
		text = strings.ReplaceAll(text, t, "[secret]")
	}
	if text == "" {
		return ""
	}
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return ": " + strconv.Quote(text)
}

// createRun returns the new run's id. It is empty where the run was made and
// its id is not in the answer.
func (a *api) createRun(ctx context.Context, r RunCreate) (string, error) {
	raw, err := a.do(ctx, http.MethodPost, "/runs", r)
	if err != nil {
		return "", err
	}
	var answer struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(raw, &answer) != nil || !isUUID(answer.ID) {
		return "", fmt.Errorf("POST /runs: %w: the answer has no id", errUncertain)
	}
	return answer.ID, nil
}

func (a *api) addEmission(ctx context.Context, e Emission) error {
	_, err := a.do(ctx, http.MethodPost, "/emissions", e)
	return err
}

// findRun looks for a run that may have been made.
func (a *api) findRun(ctx context.Context, r RunCreate) (id string, found bool, err error) {
	raw, err := a.do(ctx, http.MethodGet, "/experiments/"+url.PathEscape(r.ExperimentID)+"/runs", nil)
	if err != nil {
		return "", false, err
	}
	type run struct {
		ID        string `json:"id"`
		Timestamp string `json:"timestamp"`
	}
	var list []run
	if json.Unmarshal(raw, &list) != nil {
		var page struct{ Items []run }
		if err := json.Unmarshal(raw, &page); err != nil {
			return "", false, fmt.Errorf("GET runs: %w: %w", errRefused, err)
		}
		list = page.Items
	}
	for _, one := range list {
		if isUUID(one.ID) && sameStamp(one.Timestamp, r.Timestamp) {
			return one.ID, true, nil
		}
	}
	return "", false, nil
}

// hasEmission looks for an emission that may have been taken.
func (a *api) hasEmission(ctx context.Context, e Emission) (bool, error) {
	for page := 1; page <= maxPages; page++ {
		raw, err := a.do(ctx, http.MethodGet, fmt.Sprintf("/runs/%s/emissions?page=%d&size=%d", url.PathEscape(e.RunID), page, pageSize), nil)
		if err != nil {
			return false, err
		}
		var answer struct {
			Items []struct {
				Timestamp string  `json:"timestamp"`
				Energy    float64 `json:"energy_consumed"`
			} `json:"items"`
			Pages int `json:"pages"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			if err := json.Unmarshal(raw, &answer.Items); err != nil {
				return false, fmt.Errorf("GET emissions: %w: %w", errRefused, err)
			}
		}
		for _, one := range answer.Items {
			if sameStamp(one.Timestamp, e.Timestamp) {
				return true, nil
			}
		}
		if page >= answer.Pages {
			return false, nil
		}
	}
	return false, nil
}

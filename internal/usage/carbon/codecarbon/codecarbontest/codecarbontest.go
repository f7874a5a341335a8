// Package codecarbontest is CodeCarbon's dashboard for tests: the routes that
// clients of codecarbon 3.3.2 use, with its rules, and with faults to order.
// That it is like the real one is tested by having the real client post to it.
package codecarbontest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Fault is what becomes of a request.
type Fault int

// The faults.
const (
	None    Fault = iota
	Dropped       // the connection ends before the request is looked at
	Lost          // the request is served, and the connection ends before the answer
	Busy          // 503
	Broken        // 500, nothing was done
	Gateway       // 502, though the request was served
)

// Run is a run as it was posted.
type Run struct {
	ID   string         `json:"id"`
	Body map[string]any `json:"body"`
}

// API is the dashboard. Its zero value takes any token and knows any experiment.
type API struct {
	// Token is the only one that is taken; empty: any.
	Token string
	// Blind answers no question about runs and emissions, as to a token that
	// may only write.
	Blind bool
	// Fault decides about each request, by its method and path; nil: none.
	Fault func(method, path string) Fault

	mu        sync.Mutex
	runs      []Run
	emissions []map[string]any
	requests  []string
}

// Runs are the runs that were made, in order.
func (a *API) Runs() []Run {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Run(nil), a.runs...)
}

// Emissions are what was posted of a run; empty: of all.
func (a *API) Emissions(run string) []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []map[string]any
	for _, e := range a.emissions {
		if run == "" || e["run_id"] == run {
			list = append(list, e)
		}
	}
	return list
}

// Sum adds up a field of the emissions of a run; empty: of all.
func (a *API) Sum(run, field string) float64 {
	sum := 0.0
	for _, e := range a.Emissions(run) {
		f, _ := e[field].(float64)
		sum += f
	}
	return sum
}

// Requests are the requests that came, as METHOD PATH.
func (a *API) Requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.requests...)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	fault := None
	if a.Fault != nil {
		fault = a.Fault(r.Method, r.URL.Path)
	}
	a.mu.Unlock()
	switch fault {
	case Dropped:
		hangUp(w)
		return
	case Busy:
		answer(w, http.StatusServiceUnavailable, detail("try again"))
		return
	case Broken:
		answer(w, http.StatusInternalServerError, detail("Internal Server Error"))
		return
	}
	status, body := a.serve(r)
	switch fault {
	case Lost:
		hangUp(w)
	case Gateway:
		answer(w, http.StatusBadGateway, detail("Bad Gateway"))
	default:
		answer(w, status, body)
	}
}

func hangUp(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			_ = conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

func detail(text string) any { return map[string]any{"detail": text} }

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever hung up does not read it
}

func (a *API) serve(r *http.Request) (int, any) {
	token := r.Header.Get("x-api-token")
	if token == "" {
		return http.StatusForbidden, detail("Missing project token")
	}
	if a.Token != "" && token != a.Token {
		return http.StatusForbidden, detail("Not allowed to perform this action")
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/runs":
		return a.addRun(r.Body)
	case r.Method == http.MethodPost && r.URL.Path == "/emissions":
		return a.addEmission(r.Body)
	case r.Method != http.MethodGet || a.Blind:
		return http.StatusForbidden, detail("Not allowed to perform this action")
	case len(parts) == 3 && parts[0] == "experiments" && parts[2] == "runs":
		list := []map[string]any{}
		for _, run := range a.runs {
			if run.Body["experiment_id"] == parts[1] {
				list = append(list, shown(run))
			}
		}
		return http.StatusOK, list
	case len(parts) == 2 && parts[0] == "runs":
		for _, run := range a.runs {
			if run.ID == parts[1] {
				return http.StatusOK, shown(run)
			}
		}
	case len(parts) == 3 && parts[0] == "runs" && parts[2] == "emissions":
		var page, size int
		if _, err := fmt.Sscan(r.URL.Query().Get("page"), &page); err != nil {
			page = 1
		}
		if _, err := fmt.Sscan(r.URL.Query().Get("size"), &size); err != nil {
			size = 1000
		}
		if page < 1 || size < 1 || size > 10000 {
			return http.StatusUnprocessableEntity, detail("page or size")
		}
		all := []map[string]any{}
		for _, e := range a.emissions {
			if e["run_id"] == parts[1] {
				all = append(all, e)
			}
		}
		from := min(len(all), (page-1)*size)
		return http.StatusOK, map[string]any{
			"items": all[from:min(len(all), from+size)], "total": len(all), "page": page, "size": size, "pages": (len(all) + size - 1) / size,
		}
	}
	return http.StatusNotFound, detail("Not Found")
}

// shown is a run as the service answers with it: its time has no zone.
func shown(run Run) map[string]any {
	m := map[string]any{"id": run.ID}
	for k, v := range run.Body {
		m[k] = v
	}
	if text, ok := m["timestamp"].(string); ok {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
			m["timestamp"] = t.UTC().Format("2006-01-02T15:04:05.000000")
		}
	}
	return m
}

// want checks that a body has the fields, of these forms: t a time, s a string, n
// a number that is not negative, i a whole one; ? may be null.
func want(body map[string]any, forms map[string]string) error {
	for field, form := range forms {
		v, there := body[field]
		if v == nil {
			if !there || !strings.Contains(form, "?") {
				return fmt.Errorf("%s: field required", field)
			}
			continue
		}
		switch form[0] {
		case 's':
			if _, ok := v.(string); !ok {
				return fmt.Errorf("%s: str type expected", field)
			}
		case 't':
			text, _ := v.(string)
			if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
				return fmt.Errorf("%s: invalid datetime", field)
			}
		case 'n', 'i':
			f, ok := v.(float64)
			if !ok || f < 0 || form[0] == 'i' && f != float64(int64(f)) {
				return fmt.Errorf("%s: not a number of that form", field)
			}
		}
	}
	return nil
}

func decode(r io.Reader) (map[string]any, error) {
	var body map[string]any
	err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&body)
	return body, err
}

func (a *API) addRun(r io.Reader) (int, any) {
	body, err := decode(r)
	if err == nil {
		err = want(body, map[string]string{
			"timestamp": "t", "experiment_id": "s", "os": "s?", "python_version": "s?", "codecarbon_version": "s?",
			"cpu_count": "i?", "cpu_model": "s?", "gpu_count": "i?", "gpu_model": "s?", "longitude": "x?", "latitude": "x?",
			"region": "s?", "provider": "s?", "ram_total_size": "n?", "tracking_mode": "s?",
		})
	}
	if err != nil {
		return http.StatusUnprocessableEntity, detail(err.Error())
	}
	run := Run{ID: uuid(), Body: body}
	a.runs = append(a.runs, run)
	return http.StatusCreated, shown(run)
}

func (a *API) addEmission(r io.Reader) (int, any) {
	body, err := decode(r)
	if err == nil {
		err = want(body, map[string]string{
			"timestamp": "t", "run_id": "s", "duration": "i", "emissions_sum": "n", "emissions_rate": "n",
			"cpu_power": "n", "gpu_power": "n", "ram_power": "n", "cpu_energy": "n", "gpu_energy": "n", "ram_energy": "n", "energy_consumed": "n",
		})
	}
	if err == nil && body["duration"].(float64) < 1 {
		err = fmt.Errorf("duration: must be greater than 0")
	}
	if err != nil {
		return http.StatusUnprocessableEntity, detail(err.Error())
	}
	for _, field := range []string{"cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent"} {
		if f, ok := body[field].(float64); ok && (f < 0 || f > 100) {
			return http.StatusUnprocessableEntity, detail(field + ": not between 0 and 100")
		}
	}
	for _, run := range a.runs {
		if run.ID == body["run_id"] {
			a.emissions = append(a.emissions, body)
			return http.StatusCreated, uuid()
		}
	}
	return http.StatusNotFound, detail("run not found")
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

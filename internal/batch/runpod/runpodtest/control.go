package runpodtest

import (
	"encoding/json"
	"net/http"
	"time"
)

// Control is a handler under which tests in other languages, which have the
// Server in a process of its own, do what Go tests do by calling it. Paths
// that do not begin with /_test/ go to the Server.
//
//	GET  /_test/journal
//	GET  /_test/jobs/{endpoint}
//	GET  /_test/env/{endpoint}/{worker}        the worker's environment
//	POST /_test/endpoint/{endpoint}
//	POST /_test/fault                          a Fault; durations in milliseconds
//	POST /_test/kill/{endpoint}/{worker}
//	POST /_test/twice/{endpoint}/{job}
//	POST /_test/forget/{endpoint}/{job}
func (s *Server) Control(base string) http.Handler {
	m := http.NewServeMux()
	m.Handle("/", s)
	write := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	m.HandleFunc("GET /_test/journal", func(w http.ResponseWriter, _ *http.Request) {
		list := []map[string]any{}
		for _, e := range s.Journal() {
			list = append(list, map[string]any{"op": e.Op, "method": e.Method, "path": e.Path, "query": e.Query,
				"authorization": e.Authorization, "userAgent": e.UserAgent, "body": string(e.Body), "status": e.Status})
		}
		write(w, list)
	})
	m.HandleFunc("GET /_test/jobs/{ep}", func(w http.ResponseWriter, r *http.Request) { write(w, s.Jobs(r.PathValue("ep"))) })
	m.HandleFunc("GET /_test/env/{ep}/{worker}", func(w http.ResponseWriter, r *http.Request) {
		write(w, s.WorkerEnv(base, r.PathValue("ep"), r.PathValue("worker")))
	})
	m.HandleFunc("POST /_test/endpoint/{ep}", func(w http.ResponseWriter, r *http.Request) {
		s.AddEndpoint(r.PathValue("ep"))
		write(w, nil)
	})
	m.HandleFunc("POST /_test/fault", func(w http.ResponseWriter, r *http.Request) {
		var f struct {
			Op                      string
			Times, Status           int
			Rate                    float64
			Before, After, Cut      bool
			Garbage                 bool
			RetryMillis, SlowMillis int64
		}
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		s.Inject(Fault{Op: f.Op, Times: f.Times, Status: f.Status, Rate: f.Rate, Before: f.Before, After: f.After, Cut: f.Cut,
			Garbage: f.Garbage, Retry: time.Duration(f.RetryMillis) * time.Millisecond, Slow: time.Duration(f.SlowMillis) * time.Millisecond})
		write(w, nil)
	})
	act := func(path string, f func(a, b string)) {
		m.HandleFunc("POST /_test/"+path+"/{a}/{b}", func(w http.ResponseWriter, r *http.Request) {
			f(r.PathValue("a"), r.PathValue("b"))
			write(w, nil)
		})
	}
	act("kill", s.Kill)
	act("twice", s.DeliverTwice)
	act("forget", s.Forget)
	return m
}

// AddEndpoint makes an endpoint, unless there is one of that ID.
func (s *Server) AddEndpoint(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoints[id] == nil {
		s.endpoints[id] = newEndpoint(id)
	}
}

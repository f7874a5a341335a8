// Package kaggletest is a Kaggle for tests: the calls of its API for notebooks,
// with the wire behaviour that the kagglesdk package shows, and sessions that
// really run the scripts they are given, as processes of this machine without
// any isolation. The official kagglesdk and the kaggle command keep it honest
// (test/kaggle).
package kaggletest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say what kind of Kaggle it is. The zero value has no accounts.
type Options struct {
	// Python runs the scripts. Empty: every script ends at once, having
	// written nothing.
	Python string
	// Dir is where sessions have their files; it must exist.
	Dir string
	// Accounts are the users, by name.
	Accounts map[string]*Account
	// Env is added to the environment of scripts.
	Env []string
	// GPUSessions is how many sessions with a GPU an account may have at a
	// time. Zero is two.
	GPUSessions int
}

// Account is a user of the service.
type Account struct {
	Key     string   // of a legacy kaggle.json
	Tokens  []string // access tokens that are active
	Refresh string   // of OAuth
	GPUUsed time.Duration
	TPUUsed time.Duration
}

const (
	gpuQuota = 30 * time.Hour
	tpuQuota = 20 * time.Hour
)

// Server is a Kaggle. Its methods are safe for concurrent use.
type Server struct {
	opts    Options
	api     *httptest.Server
	storage *httptest.Server

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced with every change
	kernels  map[string]*kernel
	sessions map[int]*session
	nextID   int
	held     bool // sessions stay queued
	faults   []*Fault
	journal  []Entry
	closed   bool
	running  sync.WaitGroup
}

// Entry is one request that arrived, with what was answered.
type Entry struct {
	Host          string          `json:"host"` // "api" or "storage"
	Method        string          `json:"method"`
	Path          string          `json:"path"`
	Call          string          `json:"call"` // "SaveKernel"; "logs", "storage"
	Authorization string          `json:"authorization,omitempty"`
	UserAgent     string          `json:"userAgent,omitempty"`
	Body          json.RawMessage `json:"body,omitempty"`
	Status        int             `json:"status"` // 0: the connection was dropped
	Fault         string          `json:"fault,omitempty"`
}

// New starts a Kaggle on two ports of loopback: the API and the storage to
// which the URLs of files lead.
func New(opts Options) *Server {
	s := newServer(opts)
	s.api = httptest.NewServer(http.HandlerFunc(s.serveAPI))
	s.storage = httptest.NewServer(http.HandlerFunc(s.serveStorage))
	return s
}

func newServer(opts Options) *Server {
	if opts.GPUSessions == 0 {
		opts.GPUSessions = 2
	}
	return &Server{opts: opts, kernels: map[string]*kernel{}, sessions: map[int]*session{}, changed: make(chan struct{}), nextID: 71_000_000}
}

// URL is the API's address, without /v1.
func (s *Server) URL() string { return s.api.URL }

// StorageURL is the address of the files' storage.
func (s *Server) StorageURL() string { return s.storage.URL }

// Close ends all sessions and the service.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, x := range s.sessions {
		x.kill()
	}
	s.change()
	s.mu.Unlock()
	s.running.Wait()
	s.api.CloseClientConnections()
	s.api.Close()
	s.storage.CloseClientConnections()
	s.storage.Close()
}

// change wakes all who wait for a change. The caller holds mu.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Journal is all that arrived until now.
func (s *Server) Journal() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Entry(nil), s.journal...)
}

// Calls counts the entries of the journal of that call that were not dropped
// before they did anything.
func (s *Server) Calls(call string) int {
	n := 0
	for _, e := range s.Journal() {
		if e.Call == call && e.Fault != DropBefore {
			n++
		}
	}
	return n
}

// Hold keeps new sessions queued, until it is called with false.
func (s *Server) Hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.change()
}

// httpError is an answer other than 200.
type httpError struct {
	status  int
	message string
	header  http.Header
}

func (e *httpError) Error() string { return strconv.Itoa(e.status) + " " + e.message }

func refuse(status int, message string) error { return &httpError{status: status, message: message} }

const maxBody = 64 << 20

// serveAPI answers a request to the API, on either of its two base paths.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/api")
	entry := Entry{Host: "api", Method: r.Method, Path: r.URL.RequestURI(), Authorization: r.Header.Get("Authorization"), UserAgent: r.UserAgent()}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return
	}
	if json.Valid(body) {
		entry.Body = body
	}
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		s.fail(w, &entry, refuse(http.StatusNotFound, "not found"))
		return
	}
	if owner, slug, ok := logsPath(rest); ok && r.Method == http.MethodGet {
		entry.Call = "logs"
		s.serveLogs(w, r, &entry, owner, slug)
		return
	}
	if rest == "kernels.KernelsApiService/GetKernelSessionLogsStream" && r.Method == http.MethodPost {
		var in about
		_ = json.Unmarshal(body, &in)
		entry.Call = "logs"
		s.serveLogs(w, r, &entry, in.UserName, in.KernelSlug)
		return
	}
	handler, call, request := s.route(r, rest, body)
	entry.Call = call
	if handler == nil {
		s.fail(w, &entry, refuse(http.StatusNotFound, "no such method"))
		return
	}
	fault := s.fault(call, s.KernelOf(request))
	if s.before(w, r, &entry, fault) {
		return
	}
	user, _ := s.authenticate(r)
	answer, err := handler(user, request)
	if err != nil {
		s.fail(w, &entry, err)
		return
	}
	if fault != nil && fault.Kind == DropAfter {
		entry.Fault = DropAfter
		s.record(entry)
		panic(http.ErrAbortHandler)
	}
	entry.Status = http.StatusOK
	s.record(entry)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// KernelOf is the slug that a request is about, if any.
func (s *Server) KernelOf(request []byte) string {
	var about struct{ KernelSlug, Slug string }
	_ = json.Unmarshal(request, &about)
	if about.KernelSlug != "" {
		return about.KernelSlug
	}
	return about.Slug[strings.LastIndexByte(about.Slug, '/')+1:]
}

type handler func(user string, request []byte) (any, error)

// route finds who answers a request: an RPC, or the REST path of one.
func (s *Server) route(r *http.Request, rest string, body []byte) (handler, string, []byte) {
	calls := map[string]handler{
		"kernels.KernelsApiService/SaveKernel":                    s.authorized(s.saveKernel),
		"kernels.KernelsApiService/GetKernelSessionStatus":        s.authorized(s.sessionStatus),
		"kernels.KernelsApiService/ListKernelSessionOutput":       s.authorized(s.sessionOutput),
		"kernels.KernelsApiService/ListKernels":                   s.authorized(s.listKernels),
		"kernels.KernelsApiService/ListKernelFiles":               s.authorized(s.listFiles),
		"kernels.KernelsApiService/GetKernel":                     s.authorized(s.getKernel),
		"kernels.KernelsApiService/DeleteKernel":                  s.authorized(s.deleteKernel),
		"kernels.KernelsApiService/CancelKernelSession":           s.authorized(s.cancelSession),
		"kernels.KernelsApiService/GetAcceleratorQuotaStatistics": s.authorized(s.quota),
		"security.OAuthService/IntrospectToken":                   s.introspect,
		"users.AccountService/GenerateAccessToken":                s.refresh,
	}
	if h, ok := calls[rest]; ok && r.Method == http.MethodPost {
		return h, rest[strings.LastIndexByte(rest, '/')+1:], body
	}
	rpc := "kernels.KernelsApiService/"
	paths := map[string]string{
		"POST kernels/push": "SaveKernel", "GET kernels/status": "GetKernelSessionStatus", "GET kernels/output": "ListKernelSessionOutput",
		"GET kernels/list": "ListKernels", "GET kernels/files": "ListKernelFiles", "GET kernels/pull": "GetKernel", "GET kernels/quota": "GetAcceleratorQuotaStatistics",
	}
	if call, ok := paths[r.Method+" "+rest]; ok {
		if r.Method == http.MethodGet {
			body = queryJSON(r)
		}
		return calls[rpc+call], call, body
	}
	parts := strings.Split(rest, "/")
	switch {
	case len(parts) == 4 && parts[0] == "kernels" && parts[1] == "delete" && (r.Method == http.MethodPost || r.Method == http.MethodDelete):
		body, _ = json.Marshal(map[string]string{"userName": parts[2], "kernelSlug": parts[3]})
		return calls[rpc+"DeleteKernel"], "DeleteKernel", body
	case len(parts) == 3 && parts[0] == "kernels" && parts[1] == "cancel-session" && r.Method == http.MethodPost:
		id, _ := strconv.Atoi(parts[2])
		body, _ = json.Marshal(map[string]int{"kernelSessionId": id})
		return calls[rpc+"CancelKernelSession"], "CancelKernelSession", body
	}
	return nil, "", nil
}

// queryJSON is a query as the message that it stands for.
func queryJSON(r *http.Request) []byte {
	m := map[string]any{}
	for k, v := range r.URL.Query() {
		if n, err := strconv.Atoi(v[0]); err == nil && (k == "pageSize" || k == "page") {
			m[k] = n
		} else {
			m[k] = v[0]
		}
	}
	b, _ := json.Marshal(m)
	return b
}

func (s *Server) authorized(h handler) handler {
	return func(user string, request []byte) (any, error) {
		if user == "" {
			return nil, refuse(http.StatusUnauthorized, "Unauthenticated")
		}
		return h(user, request)
	}
}

// authenticate says whose a request is.
func (s *Server) authenticate(r *http.Request) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if user, key, ok := r.BasicAuth(); ok {
		if a := s.opts.Accounts[user]; a != nil && a.Key != "" && a.Key == key {
			return user, true
		}
		return "", false
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", false
	}
	return s.owner(token)
}

// owner is whose access token it is. The caller holds mu.
func (s *Server) owner(token string) (string, bool) {
	for name, a := range s.opts.Accounts {
		for _, t := range a.Tokens {
			if t != "" && t == token {
				return name, true
			}
		}
	}
	return "", false
}

func (s *Server) introspect(_ string, request []byte) (any, error) {
	var in struct{ Token string }
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad request")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, ok := s.owner(in.Token)
	if !ok {
		return map[string]any{}, nil
	}
	return map[string]any{"active": true, "username": name, "userId": 7, "scope": "resources.admin:*"}, nil
}

func (s *Server) refresh(_ string, request []byte) (any, error) {
	var in struct{ RefreshToken, APIVersion, ExpirationDuration string }
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad request")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, a := range s.opts.Accounts {
		if a.Refresh != "" && a.Refresh == in.RefreshToken {
			token := "oauth-" + strconv.Itoa(s.id())
			a.Tokens = append(a.Tokens, token)
			return map[string]any{"token": token, "expiresIn": 43200, "userName": name, "userId": 7}, nil
		}
	}
	return nil, refuse(http.StatusUnauthorized, "Invalid refresh token")
}

// id makes a number. The caller holds mu.
func (s *Server) id() int {
	s.nextID++
	return s.nextID
}

// fail answers with an error, in the service's form.
func (s *Server) fail(w http.ResponseWriter, entry *Entry, err error) {
	e := &httpError{status: http.StatusInternalServerError, message: err.Error()}
	_ = errors.As(err, &e)
	entry.Status = e.status
	s.record(*entry)
	for k, v := range e.header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": e.status, "message": e.message})
}

func (s *Server) record(e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = append(s.journal, e)
	s.change()
}

// Secrets are the credentials of all accounts, in every form in which a
// request carries them.
func (s *Server) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for name, a := range s.opts.Accounts {
		for _, secret := range append([]string{a.Key, a.Refresh}, a.Tokens...) {
			if secret != "" {
				all = append(all, secret)
			}
		}
		if a.Key != "" {
			all = append(all, base64.StdEncoding.EncodeToString([]byte(name+":"+a.Key)))
		}
	}
	return all
}

// Holds reports whether any file below the sessions' directory has the text in it.
func (s *Server) Holds(text string) (bool, error) {
	found := false
	err := walkFiles(s.opts.Dir, func(path string) error {
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	})
	return found, err
}

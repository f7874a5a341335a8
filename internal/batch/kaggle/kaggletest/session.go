package kaggletest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The states of a session, as the service calls them.
const (
	queued    = "QUEUED"
	running   = "RUNNING"
	complete  = "COMPLETE"
	failed    = "ERROR"
	cancelled = "CANCEL_ACKNOWLEDGED"
)

// session is one run of one version. Its fields are guarded by the server's mu.
type session struct {
	id          int
	owner, slug string
	gpu         bool
	timeout     time.Duration
	dir         string

	status, failure string
	cancelled       bool
	began, ended    time.Time
	log             []logEvent
	outputs         map[string]string // of a session that has ended: paths by name
	stop            chan struct{}
	stopOnce        sync.Once
}

type logEvent struct {
	Stream string  `json:"stream_name"`
	Time   float64 `json:"time"`
	Data   string  `json:"data"`
}

func (x *session) live() bool { return x.status == queued || x.status == running }

func (x *session) kill() { x.stopOnce.Do(func() { close(x.stop) }) }

func (x *session) names() []string {
	var names []string
	for name := range x.outputs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (x *session) size(name string) int64 {
	info, err := os.Stat(x.outputs[name])
	if err != nil {
		return 0
	}
	return info.Size()
}

// blob is the log of a session that has ended: an array, an element a line.
func (x *session) blob() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, e := range x.log {
		if i > 0 {
			b.WriteString("\n,")
		}
		line, _ := json.Marshal(e)
		b.Write(line)
	}
	b.WriteString("\n]")
	return b.String()
}

// StopSessions ends all sessions that run, as their owner can on Kaggle's page.
// It waits until there is one to end.
func (s *Server) StopSessions() {
	for {
		s.mu.Lock()
		stopped, changed := false, s.changed
		for _, x := range s.sessions {
			if x.status == running {
				x.cancelled, stopped = true, true
				x.kill()
			}
		}
		s.mu.Unlock()
		if stopped {
			return
		}
		<-changed
	}
}

// startSession puts a run of the kernel's last version into the queue. The
// caller holds mu.
func (s *Server) startSession(k *kernel) *session {
	x := &session{
		id: s.id(), owner: k.owner, slug: k.slug, gpu: k.request.gpu(), status: queued, stop: make(chan struct{}),
		timeout: time.Duration(k.request.SessionTimeoutSeconds) * time.Second,
	}
	if x.timeout == 0 {
		x.timeout = maxSessionSeconds * time.Second
	}
	s.sessions[x.id] = x
	source, datasets := k.request.Text, k.request.DatasetDataSources
	s.running.Go(func() { s.play(x, source, datasets) })
	s.change()
	return x
}

// play is the life of a session.
func (s *Server) play(x *session, source string, datasets []string) {
	for {
		s.mu.Lock()
		held, changed := s.held, s.changed
		if !held || s.closed {
			break // with mu
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-x.stop:
			s.mu.Lock()
			s.end(x, cancelled, "")
			s.mu.Unlock()
			return
		}
	}
	if s.closed {
		s.end(x, cancelled, "")
		s.mu.Unlock()
		return
	}
	x.status, x.began = running, time.Now()
	x.dir = filepath.Join(s.opts.Dir, strconv.Itoa(x.id))
	s.change()
	s.mu.Unlock()

	status, failure := complete, ""
	err := s.execute(x, source, datasets)
	if err != nil {
		status, failure = failed, err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.cancelled {
		status, failure = cancelled, ""
	}
	s.end(x, status, failure)
}

// end notes how a session ended, and keeps what it left. The caller holds mu.
func (s *Server) end(x *session, status, failure string) {
	x.outputs = map[string]string{}
	working := filepath.Join(x.dir, "working")
	if x.dir != "" {
		_ = walkFiles(working, func(path string) error {
			name, err := filepath.Rel(working, path)
			x.outputs[filepath.ToSlash(name)] = path
			return err
		})
	}
	x.status, x.failure, x.ended = status, failure, time.Now()
	s.change()
}

// errSession is how the service describes the end of a session.
type errSession string

func (e errSession) Error() string { return string(e) }

// execute runs the script until it or the session ends.
func (s *Server) execute(x *session, source string, datasets []string) error {
	working := filepath.Join(x.dir, "working")
	dirs := []string{working, filepath.Join(x.dir, "src"), filepath.Join(x.dir, "home"), filepath.Join(x.dir, "input")}
	for _, d := range datasets {
		if _, name, ok := strings.Cut(d, "/"); ok && !strings.Contains(name, "missing") {
			dirs = append(dirs, filepath.Join(x.dir, "input", filepath.Base(name)))
		}
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
		if filepath.Dir(d) == filepath.Join(x.dir, "input") {
			if err := os.WriteFile(filepath.Join(d, "data.csv"), []byte("a,b\n1,2\n"), 0o600); err != nil {
				return err
			}
		}
	}
	script := filepath.Join(x.dir, "src", "script.py")
	if err := os.WriteFile(script, []byte(source), 0o600); err != nil {
		return err
	}
	if s.opts.Python == "" {
		return nil
	}
	cmd := exec.Command(s.opts.Python, script)
	cmd.Dir = working
	cmd.Env = append([]string{
		"HOME=" + filepath.Join(x.dir, "home"), "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "KAGGLE_KERNEL_RUN_TYPE=Batch",
	}, s.opts.Env...)
	apart(cmd)
	var pipes []io.ReadCloser
	for _, pipe := range []func() (io.ReadCloser, error){cmd.StdoutPipe, cmd.StderrPipe} {
		p, err := pipe()
		if err != nil {
			return err
		}
		pipes = append(pipes, p)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Without this, a process could keep its connection after the session's end.
	timer := time.AfterFunc(x.timeout, x.kill)
	defer timer.Stop()
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-x.stop:
			killAll(cmd)
		case <-done:
		}
	})
	var readers sync.WaitGroup
	for i, p := range pipes {
		readers.Go(func() { s.collect(x, []string{"stdout", "stderr"}[i], p) })
	}
	readers.Wait()
	err := cmd.Wait()
	close(done)
	watcher.Wait()
	select {
	case <-x.stop:
		if time.Since(x.began) >= x.timeout {
			return errSession("Your notebook was stopped because it exceeded the maximum run time of " + strconv.Itoa(int(x.timeout.Seconds())) + " seconds")
		}
		return errSession("Your notebook was stopped")
	default:
	}
	if err != nil {
		return errSession("Your notebook's script failed: " + err.Error())
	}
	return nil
}

// collect keeps what a session writes, line by line as the service does.
func (s *Server) collect(x *session, stream string, from io.Reader) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			s.mu.Lock()
			x.log = append(x.log, logEvent{stream, time.Since(x.began).Seconds(), strings.ToValidUTF8(line, "\uFFFD")})
			s.change()
			s.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// logsPath splits the path of a live log.
func logsPath(rest string) (owner, slug string, ok bool) {
	rest, ok = strings.CutPrefix(rest, "kernels/logs/stream/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// serveLogs streams the log of a session from its beginning; after its end, it
// sends the whole log at once.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request, entry *Entry, owner, slug string) {
	fault := s.fault("logs", slug)
	if s.before(w, r, entry, fault) {
		return
	}
	user, ok := s.authenticate(r)
	s.mu.Lock()
	k := s.kernels[owner+"/"+slug]
	if !ok || k == nil || k.owner != user || k.session == nil {
		s.mu.Unlock()
		s.fail(w, entry, refuse(http.StatusForbidden, "Permission 'kernels.get' was denied"))
		return
	}
	x := k.session
	blob := ""
	if !x.live() {
		blob = x.blob()
	}
	s.mu.Unlock()
	entry.Status = http.StatusOK
	s.record(*entry)
	if blob != "" {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(w, blob)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	_ = out.Flush()
	for sent := 0; ; {
		s.mu.Lock()
		events, live, changed := x.log[sent:], x.live() && !s.closed, s.changed
		s.mu.Unlock()
		for _, e := range events {
			if fault != nil && fault.Kind == Truncate && sent >= 2 {
				panic(http.ErrAbortHandler)
			}
			line, _ := json.Marshal(e)
			if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
				return
			}
			sent++
		}
		if !live {
			_, _ = io.WriteString(w, "data: END_OF_LOG\n\n")
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

package kaggletest

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// serveStorage serves the files of sessions that have ended, at signed URLs:
// whoever has one needs nothing else, and credentials do not belong here.
func (s *Server) serveStorage(w http.ResponseWriter, r *http.Request) {
	entry := Entry{Host: "storage", Method: r.Method, Path: r.URL.RequestURI(), Call: "storage", Authorization: r.Header.Get("Authorization"), UserAgent: r.UserAgent()}
	if r.Header.Get("Authorization") != "" {
		s.fail(w, &entry, refuse(http.StatusBadRequest, "InvalidArgument: two ways to authenticate"))
		return
	}
	id, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	n, _ := strconv.Atoi(id)
	s.mu.Lock()
	x := s.sessions[n]
	var path string
	if x != nil {
		path = x.outputs[name]
	}
	s.mu.Unlock()
	fault := s.fault("storage", name)
	if s.before(w, r, &entry, fault) {
		return
	}
	if path == "" || r.URL.Query().Get("signature") == "" {
		s.fail(w, &entry, refuse(http.StatusForbidden, "no such object, or no signature"))
		return
	}
	if fault != nil && (fault.Kind == Truncate || fault.Kind == Short) {
		data, err := os.ReadFile(path)
		if err != nil {
			s.fail(w, &entry, err)
			return
		}
		entry.Fault, entry.Status = fault.Kind, http.StatusOK
		s.record(entry)
		if fault.Kind == Short {
			_, _ = w.Write(data[:len(data)/2])
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	entry.Status = http.StatusOK
	s.record(entry)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeFile(w, r, path)
}

// walkFiles visits the regular files below dir.
func walkFiles(dir string, visit func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return visit(path)
	})
}

package upstream

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/child"
)

// slot is a definition of a Manager, with the entry where its server runs.
type slot struct {
	manager *Manager
	def     Definition
	entry   *entry

	mu    sync.Mutex
	views map[*live]*Server
}

// view returns a server of the entry as the slot's definition shows it: under its
// name, with the tools that it allows. The same server gives the same view.
func (s *slot) view(of *Server) *Server {
	if of == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.views[of.live]; v != nil {
		return v
	}
	maps.DeleteFunc(s.views, func(_ *live, v *Server) bool { return !v.Alive() })
	v := &Server{def: s.def.StartedAs(of.def), live: of.live}
	v.callTimeout = s.manager.pool.callTimeout(s.def)
	if s.views == nil {
		s.views = make(map[*live]*Server)
	}
	s.views[of.live] = v
	return v
}

// allowed returns those of the server's tools that the definition allows. The
// result for the same list is the same.
func (s *Server) allowed(tools []tool.Tool) []tool.Tool {
	if s.def.AllowTools == nil && len(s.def.DenyTools) == 0 || len(tools) == 0 {
		return tools
	}
	s.filtering.Lock()
	defer s.filtering.Unlock()
	if len(s.filtered.from) != len(tools) || &s.filtered.from[0] != &tools[0] {
		s.filtered.from = tools
		s.filtered.to = slices.DeleteFunc(slices.Clone(tools), func(t tool.Tool) bool { return !s.def.ToolAllowed(t.Name) })
	}
	return s.filtered.to
}

// named returns the error of a server under the name that a Manager has for it.
func named(err error, name string) error {
	if early, ok := err.(*tooEarly); ok { //nolint:errorlint // the outermost
		return &tooEarly{named(early.last, name), early.wait}
	}
	var e *Error
	if !errors.As(err, &e) || e.Server == name {
		return err
	}
	c := *e
	c.Server = name
	return &c
}

// identity tells servers apart that cannot be shared: those that are started with
// other commands, arguments, variables or secrets, or in other directories, or
// reached in another way.
type identity [sha256.Size]byte

// immaterial are inherited variables whose values are no reason to start a server
// twice: how a shell finds programs, and what describes a terminal or a login. The
// command itself is compared by the file that PATH leads to.
var immaterial = []string{
	"PATH", "TERM", "SHELL", "NVM_BIN", "FNM_MULTISHELL_PATH",
	"XDG_SESSION_*", "XDG_SEAT*", "XDG_VTNR", "XDG_CURRENT_DESKTOP", "XDG_MENU_PREFIX", "XDG_ACTIVATION_TOKEN",
}

// identity returns the identity of a definition's server; twin tells definitions
// of one Manager apart that would share a server.
func (m *Manager) identity(def Definition, twin uint64) identity {
	h := sha256.New()
	number := func(n uint64) { h.Write(binary.BigEndian.AppendUint64(nil, n)) }
	number(twin)
	if alone := m.pool.opts.Alone; alone != nil && alone(def) {
		number(m.id)
	}
	spec := def.Launch()
	env := childEnvironment(m.from.environ, m.pool.opts.Inherit, spec.Env)
	path, err := child.Find(spec.Command, spec.Dir, env)
	if err != nil {
		path = spec.Command // the start will say so
	}
	hashStrings(h, string(def.Transport), path, spec.Dir)
	hashStrings(h, spec.Args...)
	var material []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if _, own := spec.Env[name]; own || !matches(immaterial, name) {
			material = append(material, kv)
		}
	}
	hashStrings(h, material...)
	var secrets []string // that the start will read
	for _, use := range def.Uses {
		if strings.Contains(use, ":") {
			secrets = append(secrets, use)
		}
	}
	hashStrings(h, secrets...)
	if r := def.Remote(); r != nil {
		var headers []string
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			headers = append(headers, name, r.Headers[name])
		}
		hashStrings(h, string(r.Transport), r.URL, r.TLS.CAFile, r.TLS.CertFile, r.TLS.KeyFile, r.TLS.ServerName)
		hashStrings(h, headers...)
		if r.TLS.Insecure {
			number(1)
		}
	}
	return identity(h.Sum(nil))
}

// hashStrings adds strings, and where each ends.
func hashStrings(h hash.Hash, list ...string) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(list))))
	for _, s := range list {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
}

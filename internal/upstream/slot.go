package upstream

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/child"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// slot is a definition of a Manager, with the entry where its server runs.
type slot struct {
	manager *Manager
	def     Definition
	entry   *entry

	mu       sync.Mutex
	views    map[*live]*Server
	released bool
	sessions map[string]*slot // of the same definition, for servers of one session each

	// session is whose server it is, and parent has it in sessions.
	session string
	parent  *slot
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
	v := &Server{def: s.def.StartedAs(of.def), client: s.manager.id, may: of.may, live: of.live}
	v.callTimeout = s.manager.pool.callTimeout(s.def)
	v.identity, _ = s.identity()
	if s.views == nil {
		s.views = make(map[*live]*Server)
	}
	s.views[of.live] = v
	return v
}

// identity is Manager.Identity for the slot.
func (s *slot) identity() (id string, lasting bool) {
	return string(s.entry.id[:]), s.manager.pool.opts.Sharing(s.def) == definitions.ShareAll
}

// Identity is what Manager.Identity says of the server.
func (s *Server) Identity() string { return s.identity }

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

// identity tells servers apart that cannot be shared: those that are started with
// other commands, arguments, variables or secrets, or in other directories, or
// reached in another way.
type identity [sha256.Size]byte

// identity returns the identity of a definition's server, and whether clients
// share it. session is the session whose server it is, for a server of each
// session; twin tells definitions of one Manager apart that would share a server.
// Everything that the start uses is in it, so that it does not matter which of the
// clients that share a server started it.
func (m *Manager) identity(def Definition, session string, twin uint64) identity {
	p := m.pool
	h := sha256.New()
	number := func(n uint64) { h.Write(binary.BigEndian.AppendUint64(nil, n)) }
	number(twin)
	hashStrings(h, session)
	if session == "" && p.opts.Sharing(def) != definitions.ShareAll {
		number(m.id)
	}
	number(uint64(p.connections(def)))
	hashStrings(h, string(def.Transport))
	if r := def.Remote(); r != nil {
		var headers []string
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			headers = append(headers, name, r.Headers[name])
		}
		hashStrings(h, string(r.Transport), r.URL, r.TLS.CAFile, r.TLS.CertFile, r.TLS.KeyFile, r.TLS.ServerName)
		hashStrings(h, headers...)
		hashStrings(h, m.from.network.Identity()...)
		if r.TLS.Insecure {
			number(1)
		}
		// A login is of a name: see oauth.Server.
		if p.opts.Logins != nil && !r.OAuth.Off && !authorizes(def) {
			hashStrings(h, def.Name)
			hashStrings(h, r.OAuth.Identity()...)
		}
	} else {
		plan := p.plan(def, m.from)
		path, err := child.Find(plan.command, plan.dir, plan.env)
		if err != nil {
			path = plan.command // the start will say so
		}
		hashStrings(h, path, plan.dir)
		hashStrings(h, plan.args...)
		hashStrings(h, plan.env...)
	}
	var secrets []string // that the start will read
	for _, use := range def.Uses {
		if strings.Contains(use, ":") {
			secrets = append(secrets, use)
			if strings.HasPrefix(use, "keyring:") {
				secrets = append(secrets, m.from.keyring)
			}
		}
	}
	hashStrings(h, secrets...)
	// Servers of the first era hear it once, at the start.
	if may := p.opts.May(def); may != (inquiry.Takes{}) {
		hashStrings(h, string(may.Capabilities()))
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

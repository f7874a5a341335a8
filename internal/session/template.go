package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// ErrTemplate reports that a session exists and was made with another template.
var ErrTemplate = errors.New("the session was made with another template")

// errNoEngine reports a Template without an engine.
var errNoEngine = errors.New("session: an engine is required")

// A Template describes the sandboxes of a session. It must not be changed after
// its first use.
type Template struct {
	Engine  sandbox.Engine   // required; owned by the caller
	Program *sandbox.Program // the interpreter's; it determines the language
	Root    sandbox.Root
	Env     map[string]string
	Limits  sandbox.Limits // zero limits take their defaults
	Network sandbox.Network
	Mounts  []sandbox.Mount // folders of the host
	// Preload are modules that the prepared snapshot has imported.
	Preload []string
	// Environment names the packages that Root has, for people; empty: those of the
	// settings. Templates that differ in nothing else are equal.
	Environment string
}

// environment returns the environment's name for a message.
func environment(name string) string {
	if name == "" {
		return "host"
	}
	return name
}

// Environment returns the name of the packages that the session has; see
// [Template.Environment].
func (s *Session) Environment() string { return s.config.Environment }

// Mounts returns the folders of the host that the session sees. They must not be
// changed.
func (s *Session) Mounts() []sandbox.Mount { return s.config.Mounts }

// WithMounts returns the template with these folders in place of its own.
func (t *Template) WithMounts(mounts []sandbox.Mount) *Template {
	if slices.Equal(mounts, t.Mounts) {
		return t
	}
	own := *t
	own.Mounts = mounts
	return &own
}

// binding identifies what the state of a session depends on, across processes
// and versions of this program, except for its limits and what only the engine
// knows.
func (t *Template) binding() string {
	data, err := json.Marshal(struct {
		Root    sandbox.Root
		Env     map[string]string
		Network sandbox.Network
		Mounts  []sandbox.Mount `json:",omitempty"`
	}{t.Root, t.Env, t.Network, t.Mounts})
	if err != nil {
		panic(err) // of plain data
	}
	return t.Engine.Name() + "-" + digest(data)
}

// id identifies the template in this process: templates with the same id share
// a prepared snapshot and a pool. Engines with the same name are the same.
func (t *Template) id() string {
	data, err := json.Marshal(struct {
		Limits  sandbox.Limits
		Preload []string
	}{t.Limits.WithDefaults(), t.Preload})
	if err != nil {
		panic(err) // of plain data
	}
	return fmt.Sprintf("%s-%p-%s", t.binding(), t.Program, digest(data))
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// spec returns a new sandbox of the template.
func (t *Template) spec() sandbox.Spec {
	return sandbox.Spec{ID: newID(), Program: t.Program, Root: t.Root, Env: t.Env, Limits: t.Limits, Network: t.Network, Mounts: t.Mounts}
}

// config is the configuration of everything that starts sandboxes.
type config struct {
	Options
	Template
	label string // of the sandboxes, for the user
}

// spec returns a new sandbox.
func (c *config) spec() sandbox.Spec {
	spec := c.Template.spec()
	spec.Owner = c.label
	return spec
}

// shared is what the sessions of one template share.
type shared struct {
	config   config
	id       string
	used     time.Duration     // when a session was last made with it; belongs to the set
	prepared *preparedSnapshot // nil: sandboxes are started anew
	pool     *pool             // nil: none are kept ready
}

// newShared returns the shared parts of a template. It prepares nothing yet.
func newShared(options Options, t *Template) (*shared, error) {
	if t == nil || t.Engine == nil {
		return nil, errNoEngine
	}
	if options.Logger == nil {
		return nil, errors.New("session: a logger is required")
	}
	c := config{Options: options, Template: *t}
	c.Limits = c.Limits.WithDefaults()
	return &shared{config: c, id: t.id()}, nil
}

// restorer returns what restores sandboxes; nil: sessions cannot be suspended. It is
// not the same at all times where the engine stands for one of several.
func (p *shared) restorer() sandbox.Restorer {
	r, _ := p.restoring()
	return r
}

// restoring returns the restorer and the name of its engine, also where the engine
// changes meanwhile.
func (p *shared) restoring() (sandbox.Restorer, string) {
	if p.config.Snapshots == nil {
		return nil, p.config.Engine.Name()
	}
	r, _ := sandbox.As[sandbox.Restorer](p.config.Engine)
	if e, ok := r.(sandbox.Engine); ok {
		return r, e.Name()
	}
	return r, p.config.Engine.Name()
}

// open makes what is shared available to the sessions of a Set.
func (p *shared) open(all *pools) {
	p.prepared = newPreparedSnapshot(p.config, p.restorer)
	p.pool = newPool(p.config, p.prepared, all)
}

func (p *shared) close() {
	p.pool.close()
	p.prepared.close()
}

// unkept tells why sessions of this template end with the process; nil: they
// are kept.
func (p *shared) unkept() error {
	switch {
	case p.restorer() != nil:
		return nil
	case p.config.Snapshots == nil:
		return errors.New("there is no directory to keep it in (set stateDir, XDG_STATE_HOME, or HOME to a directory that exists)")
	}
	return fmt.Errorf("engine %s cannot save sandboxes", p.config.Engine.Name())
}

package hostroot

import (
	"context"
	"fmt"
	"sync"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// A Finder finds the host's interpreters for programs, and remembers the default
// one of each. It is safe for concurrent use.
type Finder struct {
	// Name is the default interpreter: an absolute path, or a name to look up in
	// Path. Empty: the program's own default.
	Name string
	// Path is the search path, as in the environment variable PATH.
	Path string

	mu    sync.Mutex
	found map[*sandbox.Program]*sandbox.Runtime
}

// Find finds the interpreter of that name, or the default one where name is
// empty.
func (f *Finder) Find(ctx context.Context, p *sandbox.Program, name string) (*sandbox.Runtime, error) {
	if p.Find == nil {
		return nil, fmt.Errorf("%w: %s cannot use the host's files as its root", sandbox.ErrUnsupported, p.Language)
	}
	if name != "" {
		return p.Find(ctx, name, f.Path)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.found[p]; r != nil {
		return r, nil
	}
	name = f.Name
	if name == "" {
		name = p.Interpreter
	}
	r, err := p.Find(ctx, name, f.Path)
	if err != nil {
		return nil, err
	}
	if f.found == nil {
		f.found = map[*sandbox.Program]*sandbox.Runtime{}
	}
	f.found[p] = r
	return r, nil
}

// Describe notes in a report which interpreter the default root runs, or that
// there is none.
func (f *Finder) Describe(ctx context.Context, p *sandbox.Program, report *sandbox.Report) {
	r, err := f.Find(ctx, p, "")
	if err != nil {
		report.Findings = append(report.Findings, sandbox.Finding{
			Fatal: true, Title: "no usable " + p.Language + " on this host", Detail: err.Error(), Remedy: p.Install,
		})
		return
	}
	report.Runtime = fmt.Sprintf("%s (%s)", r.Executable, r.Version)
}

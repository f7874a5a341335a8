package authz

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// ErrNil is the answer of a nil policy: having none is a mistake in the
// program's construction, not a permission.
var ErrNil = errors.New("no policy was given, so nothing may run")

// Resources are those that a policy decides on, in the order of messages.
var Resources = []sandbox.Resource{
	sandbox.Memory, sandbox.Processes, sandbox.Disk, sandbox.OpenFiles, sandbox.CPU,
}

// A Policy is what must hold before code runs. The zero value denies
// everything. A Policy is not modified after its construction, and is then
// safe for concurrent use.
type Policy struct {
	// MinIsolation is the least isolation accepted. NoIsolation, the zero
	// value, is accepted only together with AllowNoIsolation.
	MinIsolation sandbox.Isolation
	// AllowNoIsolation accepts an engine that isolates nothing. It exists for
	// tests of everything above the engine.
	AllowNoIsolation bool
	// Require is the least enforcement accepted of each limit. A resource
	// that is not mentioned must be enforced hard; name it with
	// sandbox.Absent to do without.
	Require map[sandbox.Resource]sandbox.Enforcement
	// Remote is what the machines of batch services must offer.
	// That is not this machine, which MinIsolation and Require protect.
	Remote Remote
	// Servers are the MCP servers that code may be granted: names, in which
	// an asterisk stands for any characters. None are allowed when it is
	// empty.
	Servers []string
}

// Remote is what a policy demands of other people's machines. The zero value
// demands nothing: which engines may send code away at all is decided where they
// are constructed.
type Remote struct {
	MinIsolation sandbox.Isolation
	Require      map[sandbox.Resource]sandbox.Enforcement
}

// Default is the policy of a person's own machine: a kernel of the sandbox's own
// or WebAssembly in a confined process, so that no code calls the host's kernel
// freely, and every limit enforced but the share of the CPU. Memory and processes
// may be bounded by a watcher, because an ordinary user without a delegated
// cgroup has nothing better.
func Default() *Policy {
	return &Policy{
		MinIsolation: sandbox.WasmIsolation,
		Require: map[sandbox.Resource]sandbox.Enforcement{
			sandbox.Memory:    sandbox.Soft,
			sandbox.Processes: sandbox.Soft,
			sandbox.Disk:      sandbox.Hard,
			sandbox.OpenFiles: sandbox.Soft,
			sandbox.CPU:       sandbox.Absent,
		},
		Remote: Remote{
			MinIsolation: sandbox.PlatformIsolation,
			Require:      map[sandbox.Resource]sandbox.Enforcement{sandbox.Memory: sandbox.Soft, sandbox.Processes: sandbox.Soft},
		},
		Servers: []string{"*"},
	}
}

// A Violation says in what an engine falls short of a policy.
type Violation struct {
	Backend string
	Missing []Shortfall
}

// A Shortfall is one thing that the engine does not offer.
type Shortfall struct {
	What   string // "memory limit"
	Has    string // "absent"
	Wants  string // "soft"
	Accept string // the setting that would accept it; empty where Measure is not
	// Measure is what lets the engine be measured, which may show more.
	Measure string
}

// remedy says what to do about it.
func (s *Shortfall) remedy() string {
	if s.Measure != "" {
		return "not measured yet: " + s.Measure
	}
	return "to accept it, set " + s.Accept
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the sandbox engine %s offers less than the policy demands", v.Backend)
	for i, m := range v.Missing {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s is %s, at least %s is demanded", sep, m.What, m.Has, m.Wants)
		fmt.Fprintf(&b, " (%s)", m.remedy())
	}
	return b.String()
}

// check reports what the engine that r describes lacks. The error is a
// [*Violation], unless there is no report.
func (p *Policy) check(r *sandbox.Report) error {
	if r == nil {
		return errors.New("policy: the engine has not been probed")
	}
	var missing []Shortfall
	lacks := func(s Shortfall, possible bool) {
		// A measurement may show more: that is no reason to accept less.
		if r.Provisional && r.Measure != "" && possible {
			s.Accept, s.Measure = "", r.Measure
		}
		missing = append(missing, s)
	}
	switch {
	case p.MinIsolation == sandbox.NoIsolation && !p.AllowNoIsolation:
		missing = append(missing, Shortfall{
			What: "isolation", Has: r.Isolation.String(), Wants: "what the policy names, and it names none",
			Accept: "policy.minIsolation: " + r.Isolation.String(),
		})
	case r.Isolation < p.MinIsolation:
		lacks(Shortfall{
			What: "isolation", Has: r.Isolation.String(), Wants: p.MinIsolation.String(),
			Accept: "policy.minIsolation: " + r.Isolation.String(),
		}, r.Possible >= p.MinIsolation)
	}
	for _, res := range Resources {
		want, named := p.Require[res]
		if !named {
			want = sandbox.Hard
		}
		if has := r.Limits[res].Enforcement; has < want {
			lacks(Shortfall{
				What: string(res) + " limit", Has: has.String(), Wants: want.String(),
				Accept: fmt.Sprintf("policy.require.%s: %s", settingOf(res), has),
			}, true)
		}
	}
	if len(missing) > 0 {
		return &Violation{Backend: r.Backend, Missing: missing}
	}
	return nil
}

// settingOf is the name of a resource in settings.
func settingOf(r sandbox.Resource) string {
	if r == sandbox.OpenFiles {
		return "openFiles"
	}
	return string(r)
}

// allowsServer reports whether code may be granted the MCP server.
func (p *Policy) allowsServer(name string) bool {
	return slices.ContainsFunc(p.Servers, func(pattern string) bool { return Matches(pattern, name) })
}

// Matches compares a name with a pattern in which * stands for any
// characters.
func Matches(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == name
	}
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name = rest
	}
	return true
}

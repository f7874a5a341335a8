package toolpolicy

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/settings"
)

// Directory is the name of the directory of further files of rules, next to the
// configuration file.
const Directory = "policy.d"

// ApprovedFile is the file in Directory that has what a person has approved for
// good. Its rules decide last, after those of every other file, so that they
// replace the profile and weaken no rule.
const ApprovedFile = "approved.yaml"

// shortApproved is what short makes of it.
const shortApproved = Directory + "/" + ApprovedFile

// recheck is how long it may take until a call notices that a file has changed. An
// execution notices at once.
const recheck = 250 * time.Millisecond

// Config is where rules come from.
type Config struct {
	// Path is the configuration file; empty where there is no place for one. It
	// need not exist, unless the user has named it.
	Path  string
	Named bool
	// Home is the user's home directory, for paths in the file; it may be empty.
	Home string
	// Profile is one that holds whatever the file says, unless the file's is
	// stricter; empty for none.
	Profile string
	// Instead is read as the content of the file, where it is not nil: to try a change.
	Instead []byte
	// Had returns what [Rules.Keep] was given, also by other processes before; nil
	// if that is not known.
	Had func() Had
}

// Had says what there was when the files were last right, which must not vanish
// without a word: rules or a profile in the configuration file, and rules that do
// more than allow in the directory next to it.
type Had struct {
	Config    bool `json:"config"`
	Directory bool `json:"directory"`
}

// Rules are the user's rules for calls. They implement [authz.ToolRules].
type Rules struct {
	config Config
	began  time.Time

	now     atomic.Pointer[state]
	checked atomic.Int64 // when the files were last compared, since began
	mu      sync.Mutex   // held while files are compared and read
	listed  fs.FileInfo  // the configuration file's directory, when its names were last compared; nil: not yet
	keep    func(Had)    // nil: it is kept in memory only
	kept    Had
}

// state is what was read at one time. It is immutable.
type state struct {
	denying, others []*Rule // in the order in which they count
	approved        []*Rule // of ApprovedFile, those that deny aside
	profile         int
	profileFrom     string
	broken          *Broken
	files           map[string]fs.FileInfo // what was read, or looked for: nil
	ways            map[string]fs.FileInfo // directories and links on the way to these
	names           []string               // next to the configuration file, that a person may have meant
	unsettled       bool                   // a file changed just before it was read
	had             Had
}

// Open reads the rules. What is wrong with them is for [Rules.Broken] to say.
func Open(config Config) *Rules {
	r := &Rules{config: config, began: time.Now()}
	if config.Had != nil {
		r.kept = config.Had()
	}
	r.now.Store(r.read(r.kept))
	return r
}

// Keep calls keep with the present state, and after each change, so that processes
// that begin later can know it.
func (r *Rules) Keep(keep func(Had)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep = keep
	r.tell(r.now.Load())
}

// tell calls r.keep if it does not know yet. The caller holds r.mu.
func (r *Rules) tell(s *state) {
	if r.keep != nil && s.had != r.kept {
		r.kept = s.had
		r.keep(s.had)
	}
}

// Broken is the error for rules that cannot be applied.
type Broken struct{ Problems []settings.Problem }

func (b *Broken) Error() string {
	p := b.Problems[0]
	p.File, p.Message = short(p.File), cmp.Or(p.Brief, p.Message)
	text := "the rules for calls cannot be applied, so no code runs: " + p.String()
	if more := len(b.Problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text + " ('sallyport policy check' says more)"
}

// short returns the name of a file of rules as code may know it.
func short(path string) string {
	if dir := filepath.Dir(path); filepath.Base(dir) == Directory {
		return Directory + "/" + filepath.Base(path)
	}
	return filepath.Base(path)
}

// Broken implements [authz.ToolRules]. The error is a [*Broken].
func (r *Rules) Broken(now bool) error {
	if s := r.current(now); s.broken != nil {
		return s.broken
	}
	return nil
}

// DecideCall implements [authz.ToolRules].
func (r *Rules) DecideCall(p authz.Principal, a authz.Action) authz.Verdict {
	s := r.current(false)
	if s.free() {
		return authz.Verdict{Effect: authz.Allow}
	}
	return s.verdict(p, a, nil)
}

// free reports that everything is allowed.
func (s *state) free() bool {
	return s.broken == nil && len(s.denying)+len(s.others)+len(s.approved) == 0 && s.profile == open
}

// Explain decides as an execution that starts now would, and says why.
func (r *Rules) Explain(p authz.Principal, a authz.Action) Explanation {
	var e Explanation
	e.Verdict = r.current(true).verdict(p, a, &e)
	return e
}

func (s *state) verdict(p authz.Principal, a authz.Action, explain *Explanation) authz.Verdict {
	if s.broken != nil {
		return authz.Verdict{Rule: settings.RulesKey, Because: s.broken.Error()}
	}
	on := subject{principal: p}
	switch a := a.(type) {
	case authz.CallTool:
		on.server, on.tool, on.args = a.Server.Name, &a, &arguments{raw: a.Arguments}
	case authz.ReadResource:
		on.server, on.resource, on.isResource = a.Server.Name, a.URI, true
	case authz.GetPrompt:
		on.server, on.prompt, on.isPrompt = a.Server.Name, a.Prompt, true
	default:
		return authz.Verdict{Rule: settings.RulesKey, Because: "this is not a call"}
	}
	return s.decide(&on, explain)
}

// A View is everything that holds, for people.
type View struct {
	Profile     string             `json:"profile"`
	ProfileFrom string             `json:"profileFrom"`
	Rules       []*Rule            `json:"rules"` // in the order of the files
	Problems    []settings.Problem `json:"problems,omitempty"`
	Files       []string           `json:"files"` // that were read
}

// View returns what holds now.
func (r *Rules) View() View {
	s := r.current(true)
	v := View{Profile: settings.Profiles[s.profile], ProfileFrom: s.profileFrom, Rules: slices.Concat(s.denying, s.others, s.approved), Files: []string{}}
	for path, info := range s.files {
		if info != nil && !info.IsDir() {
			v.Files = append(v.Files, path)
		}
	}
	slices.SortFunc(v.Files, r.order)
	slices.SortFunc(v.Rules, func(a, b *Rule) int {
		if c := r.order(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	if s.broken != nil {
		v.Problems = s.broken.Problems
	}
	return v
}

// order has the files in the order in which their rules count.
func (r *Rules) order(a, b string) int {
	place := func(path string) int {
		switch {
		case path == r.config.Path:
			return 0
		case short(path) == shortApproved:
			return 2
		}
		return 1
	}
	return cmp.Or(place(a)-place(b), strings.Compare(a, b))
}

// Another returns the name of a rule about a tool that stands in another file than
// ApprovedFile, whatever session, client or arguments it wants; it is empty where
// there is none.
func (r *Rules) Another(call authz.CallTool) string {
	s := r.current(true)
	on := subject{server: call.Server.Name, tool: &call}
	for _, rule := range slices.Concat(s.denying, s.others) {
		anyone := *rule
		anyone.Session, anyone.Client = nil, nil
		if anyone.about(&on) {
			return rule.label()
		}
	}
	return ""
}

// ByProfile reports whether a verdict is a profile's, and not that of a rule.
func ByProfile(v authz.Verdict) bool { return strings.HasPrefix(v.ID, profileRule) }

// current returns what holds, and reads files that have changed.
func (r *Rules) current(now bool) *state {
	if !now && time.Since(r.began)-time.Duration(r.checked.Load()) < recheck {
		return r.now.Load()
	}
	if now {
		r.mu.Lock()
	} else if !r.mu.TryLock() { // someone is at it
		return r.now.Load()
	}
	defer r.mu.Unlock()
	s := r.now.Load()
	if s.unsettled || r.changed(s) {
		s = r.read(s.had)
		r.now.Store(s)
		r.tell(s)
	}
	r.checked.Store(int64(time.Since(r.began)))
	return s
}

package toolpolicy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/settings"
)

// Directory is the name of the directory of further files of rules, next to the
// configuration file.
const Directory = "policy.d"

// ApprovedFile is the file in Directory that has what a person has approved for
// good. Its rules decide last, after those of every other file, so that they
// replace the profile and weaken no rule.
const ApprovedFile = "approved.yaml"

// recheck is how long it may take until a call notices that a file has changed. An
// execution notices at once.
const recheck = 250 * time.Millisecond

// Config is where rules come from.
type Config struct {
	// Path is the configuration file; empty where there is no place for one. It
	// need not exist.
	Path string
	// Profile is one that holds whatever the file says, unless the file's is
	// stricter; empty for none.
	Profile string
}

// Rules are the user's rules for calls. They implement [authz.ToolRules].
type Rules struct {
	config Config
	began  time.Time

	now     atomic.Pointer[state]
	checked atomic.Int64 // when the files were last compared, since began
	mu      sync.Mutex   // held while files are compared and read
}

// state is what was read at one time. It is immutable.
type state struct {
	denying, others []*Rule // in the order in which they count
	approved        []*Rule // of ApprovedFile, those that deny aside
	profile         int
	profileFrom     string
	broken          *Broken
	files           map[string]fs.FileInfo // what was read, or looked for: nil
	unsettled       bool                   // a file changed just before it was read
	said            bool                   // the configuration file says something about calls
}

// Open reads the rules. What is wrong with them is for [Rules.Broken] to say.
func Open(config Config) *Rules {
	r := &Rules{config: config, began: time.Now()}
	r.now.Store(r.read(nil))
	return r
}

// Broken is the error for rules that cannot be applied.
type Broken struct{ Problems []settings.Problem }

func (b *Broken) Error() string {
	p := b.Problems[0]
	p.File = short(p.File)
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
		case short(path) == Directory+"/"+ApprovedFile:
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
		s = r.read(s)
		r.now.Store(s)
	}
	r.checked.Store(int64(time.Since(r.began)))
	return s
}

// changed reports whether a file differs from when it was read.
func (r *Rules) changed(s *state) bool {
	for path, before := range s.files {
		info, _ := os.Stat(path)
		if path == filepath.Dir(r.config.Path) && info != nil && before != nil { // who can write to it is all that matters
			if info.Mode() != before.Mode() || !os.SameFile(info, before) {
				return true
			}
		} else if !same(info, before) {
			return true
		}
	}
	return false
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

// read reads everything. Before is what held until now.
func (r *Rules) read(before *state) *state {
	s := &state{files: map[string]fs.FileInfo{}}
	l := &loading{names: map[string]*Rule{}}
	if r.config.Path != "" {
		dir := filepath.Dir(r.config.Path)
		content, foreign := s.file(l, r.config.Path)
		if content != nil {
			(&reader{l, r.config.Path, short(r.config.Path)}).main(content)
		}
		s.said = l.profile != "" || len(l.rules) > 0
		wrong := func(message string) {
			l.problems = append(l.problems, settings.Problem{File: r.config.Path, Message: message})
		}
		if before != nil && before.said && len(bytes.TrimSpace(content)) == 0 {
			s.said = true
			wrong("it had rules for calls, and is gone or empty: restore it, or say policy: {profile: open} in it")
		}
		if before != nil && len(l.problems) > 0 {
			s.said = s.said || before.said
		}
		if foreign == "" && s.said {
			foreign = s.parent(l, dir)
		}
		if foreign != "" && s.said { // else its owner has more to say than rules
			wrong(foreign)
		}
		for _, path := range s.list(l, filepath.Join(dir, Directory)) {
			content, foreign := s.file(l, path)
			if foreign != "" {
				l.problems = append(l.problems, settings.Problem{File: path, Message: foreign})
			} else if content != nil {
				(&reader{l, path, short(path)}).extra(content)
			}
		}
	}
	s.profileFrom = "default"
	if l.profile != "" {
		s.profile, s.profileFrom = max(0, slices.Index(settings.Profiles, l.profile)), fmt.Sprintf("%s:%d", r.config.Path, l.profiled)
	}
	if floor := slices.Index(settings.Profiles, r.config.Profile); floor > s.profile {
		s.profile, s.profileFrom = floor, "a variable or a flag"
	}
	for _, rule := range l.rules {
		switch {
		case rule.verdict.Effect == authz.Deny:
			s.denying = append(s.denying, rule)
		case rule.short == Directory+"/"+ApprovedFile:
			s.approved = append(s.approved, rule)
		default:
			s.others = append(s.others, rule)
		}
	}
	if len(l.problems) > 0 {
		s.broken = &Broken{l.problems}
	}
	return s
}

// look notes what is at a path. Nil means that nothing is.
func (s *state) look(l *loading, path string) fs.FileInfo {
	info, err := os.Stat(path)
	s.files[path] = info
	if err != nil {
		s.files[path] = nil
		if !errors.Is(err, fs.ErrNotExist) {
			l.problems = append(l.problems, settings.Problem{File: path, Message: "it cannot be read: " + errors.Unwrap(err).Error()})
		}
		return nil
	}
	if time.Since(info.ModTime()).Abs() < time.Second { // it may change again without a trace
		s.unsettled = true
	}
	return info
}

// file reads a file, and says why others can change it, if they can. The content
// is nil where there is none.
func (s *state) file(l *loading, path string) (content []byte, foreign string) {
	wrong := func(format string, args ...any) ([]byte, string) {
		l.problems = append(l.problems, settings.Problem{File: path, Message: fmt.Sprintf(format, args...)})
		return nil, ""
	}
	info := s.look(l, path)
	if info == nil {
		return nil, ""
	}
	if !info.Mode().IsRegular() {
		return wrong("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return wrong("it cannot be read: %v", errors.Unwrap(err))
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return wrong("it cannot be read: %v", errors.Unwrap(err))
	}
	if !same(opened, info) {
		s.unsettled = true
	}
	content, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return wrong("it cannot be read: %v", errors.Unwrap(err))
	case len(content) > maxFile:
		return wrong("it is larger than %d KiB", maxFile>>10)
	}
	return content, remedied(private.Foreign(opened))
}

// parent says why others can replace what is in a directory, if they can.
func (s *state) parent(l *loading, dir string) string {
	unsettled := s.unsettled
	info := s.look(l, dir)
	s.unsettled = unsettled // its own age does not matter
	if info == nil || info.Mode()&fs.ModeSticky != 0 {
		return ""
	}
	if why := private.Foreign(info); why != "" {
		return "its directory: " + remedied(why)
	}
	return ""
}

// remedied adds what to do about a file that others can change.
func remedied(why string) string {
	if why == "" {
		return ""
	}
	return why + ": make it yours alone (chown, chmod go-w)"
}

// list returns the files of rules in a directory, sorted by name.
func (s *state) list(l *loading, dir string) []string {
	wrong := func(path, format string, args ...any) {
		l.problems = append(l.problems, settings.Problem{File: path, Message: fmt.Sprintf(format, args...)})
	}
	info := s.look(l, dir)
	if info == nil {
		return nil
	}
	if why := remedied(private.Foreign(info)); why != "" {
		wrong(dir, "%s", why)
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		wrong(dir, "it cannot be read: %v", errors.Unwrap(err))
		return nil
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch ext := filepath.Ext(e.Name()); {
		case strings.HasPrefix(e.Name(), "."):
		case ext == ".yaml":
			out = append(out, path)
		case ext == ".yml", ext == ".json":
			wrong(path, "only files named *.yaml are read here: rename it")
			s.look(l, path)
		}
	}
	if len(out) > maxFiles {
		wrong(dir, "it has more than %d files", maxFiles)
		return nil
	}
	return out
}

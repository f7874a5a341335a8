// Package toolpolicy has the user's rules for calls: which tools of which servers
// code may call, with which arguments, how often, and what a person is asked
// about. It reads them from the configuration file and from policy.d next to it,
// again whenever these change. What it cannot read completely it does not apply
// at all: then no code runs, until it is right again.
package toolpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// A Rule is one rule as its file has it. Names may have asterisks, which stand for
// any characters; one of a list must match, and an empty list matches all.
type Rule struct {
	Name     string   `json:"name,omitempty"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Server   []string `json:"server,omitempty"`
	Tool     []string `json:"tool,omitempty"`
	Resource []string `json:"resource,omitempty"`
	Prompt   []string `json:"prompt,omitempty"`
	Session  []string `json:"session,omitempty"`
	Client   []string `json:"client,omitempty"`
	// Annotations has those of readOnly, destructive, idempotent and openWorld that
	// the rule wants.
	Annotations map[string]bool `json:"annotations,omitempty"`
	If          string          `json:"if,omitempty"`
	Action      string          `json:"action"`
	Because     string          `json:"because,omitempty"`
	// Limits and Cache are as people write them: "perMinute: 20".
	Limits []string `json:"limits,omitempty"`
	Cache  string   `json:"cache,omitempty"`
	Audit  string   `json:"audit,omitempty"`

	short     string     // the file, as code may know it
	condition *condition // nil: none
	verdict   authz.Verdict
}

// label returns what a denial calls the rule. It does not say where the user's
// files are.
func (r *Rule) label() string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("%s:%d", r.short, r.Line)
}

// identity returns a digest of what the rule says, wherever it stands.
func (r *Rule) identity() string {
	said := *r
	said.File, said.Line = "", 0
	text, _ := json.Marshal(said) // strings and lists never fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// approved reports whether the rule stands among those that decide last.
func (r *Rule) approved() bool {
	return r.short == shortApproved && r.verdict.Effect != authz.Deny
}

// Matches describes what the rule is about.
func (r *Rule) Matches() string {
	var parts []string
	for _, key := range r.keys() {
		if len(*key.list) > 0 {
			parts = append(parts, key.name+" "+strings.Join(*key.list, ", "))
		}
	}
	for _, name := range annotations {
		if want, ok := r.Annotations[name]; ok {
			parts = append(parts, fmt.Sprintf("%s: %v", name, want))
		}
	}
	if r.If != "" {
		parts = append(parts, "if "+r.If)
	}
	if len(parts) == 0 {
		return "everything"
	}
	return strings.Join(parts, "; ")
}

// key is a key of a rule that has names.
type key struct {
	name string
	list *[]string
}

func (r *Rule) keys() []key {
	return []key{
		{"server", &r.Server}, {"tool", &r.Tool}, {"resource", &r.Resource}, {"prompt", &r.Prompt},
		{"session", &r.Session}, {"client", &r.Client},
	}
}

// annotations are the names of annotations in rules.
var annotations = []string{"readOnly", "destructive", "idempotent", "openWorld"}

// annotated returns the annotations of a tool in the order of their names.
func annotated(a tool.Annotations) [4]bool {
	return [4]bool{a.ReadOnly, a.Destructive(), a.Idempotent, !a.ClosedWorld}
}

// subject is what a rule is held against.
type subject struct {
	principal            authz.Principal
	server               string
	tool                 *authz.CallTool // nil for a resource or a prompt
	resource, prompt     string
	isResource, isPrompt bool
	args                 *arguments
}

// about reports whether the rule is about the subject, its condition aside.
func (r *Rule) about(s *subject) bool {
	switch {
	case !among(r.Server, s.server), !among(r.Session, s.principal.Session), !among(r.Client, s.principal.Client):
		return false
	case s.isResource:
		return r.forOthers() && len(r.Prompt) == 0 && among(r.Resource, s.resource)
	case s.isPrompt:
		return r.forOthers() && len(r.Resource) == 0 && among(r.Prompt, s.prompt)
	case len(r.Resource) > 0, len(r.Prompt) > 0, !among(r.Tool, s.tool.Tool):
		return false
	case r.Annotations == nil:
		return true
	}
	has := annotated(s.tool.Annotations)
	for i, name := range annotations {
		if want, ok := r.Annotations[name]; ok && want != has[i] {
			return false
		}
	}
	return true
}

// restricts reports whether more may be allowed without the rule. Answers to
// questions write rules that only allow, and a person may remove all of these.
func (r *Rule) restricts() bool { return r.verdict.Effect != authz.Allow || r.verdict.Limits != nil }

// forOthers reports whether the rule is not about tools alone.
func (r *Rule) forOthers() bool {
	return len(r.Tool) == 0 && r.Annotations == nil && r.condition == nil
}

func among(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(patterns, func(p string) bool { return authz.Matches(p, name) })
}

// matches reports whether the rule matches. A condition that cannot be evaluated
// matches where the rule denies or asks, and does not where it allows.
func (r *Rule) matches(s *subject) (matches bool, trouble error) {
	if !r.about(s) {
		return false, nil
	}
	if r.condition == nil {
		return true, nil
	}
	holds, err := r.condition.holds(s)
	if err != nil {
		return r.verdict.Effect != authz.Allow, err
	}
	return holds, nil
}

// The profiles, in the order of settings.Profiles.
const (
	open = iota
	careful
	locked
)

// profileRule begins what a profile is called where a rule is named.
const profileRule = "profile "

// profileVerdict decides on what no rule is about.
func profileVerdict(profile int, s *subject) authz.Verdict {
	v := authz.Verdict{Rule: profileRule + settings.Profiles[profile]}
	v.ID = v.Rule
	switch {
	case profile == open, profile == careful && (s.tool == nil || s.tool.Annotations.ReadOnly):
		v.Effect = authz.Allow
	case profile == careful:
		v.Effect, v.Because = authz.Ask, "the tool may change something"
	default:
		v.Because = "no rule allows it"
	}
	return v
}

// An Explanation says how a verdict came about.
type Explanation struct {
	Verdict authz.Verdict
	Rule    *Rule // nil: the profile decided
	// Troubles are conditions that could not be evaluated on the way.
	Troubles []string
}

// decide applies the rules: a rule that denies wins wherever it stands, then the
// first rule that matches; what was approved for good decides last, in the place of
// the profile.
func (s *state) decide(on *subject, explain *Explanation) authz.Verdict {
	for _, group := range [][]*Rule{s.denying, s.others, s.approved} {
		for _, r := range group {
			matches, trouble := r.matches(on)
			if trouble != nil && explain != nil {
				explain.Troubles = append(explain.Troubles, fmt.Sprintf("%s: %v", r.label(), trouble))
			}
			if !matches {
				continue
			}
			v := r.verdict
			if trouble != nil && v.Because == "" {
				v.Because = "its condition could not be evaluated"
			}
			if explain != nil {
				explain.Rule = r
			}
			return v
		}
	}
	return profileVerdict(s.profile, on)
}

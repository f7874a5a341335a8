package toolpolicy

import (
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
)

// A Subject is what a person writes a rule about: everything of a server, or those
// of its tools that match a name.
type Subject struct {
	Server string
	Tool   string // may have asterisks; empty: everything
}

// A Plan says where a rule about a subject belongs in the configuration file, and
// which other rules limit it. A new rule comes after those that are about fewer
// calls, and before those that would decide in its place.
type Plan struct {
	// Same is the rule that has this subject and nothing else, at SameAt of the file's
	// rules; nil: none.
	Same   *Rule
	SameAt int
	At     int // before which of the file's rules the new one belongs
	// Deny are rules that deny all that the subject names: they win wherever they
	// stand.
	Deny []*Rule
	// First are the rules that decide differently on some of the calls.
	First []*Rule
}

// Moves reports whether the rule that is there must move to count.
func (p *Plan) Moves() bool { return p.Same != nil && p.At < p.SameAt }

// Plan plans a rule with an action about a subject. The rules must not be broken.
func (r *Rules) Plan(on Subject, action string) Plan {
	s := r.current(true)
	all := slices.Concat(s.denying, s.others)
	var file []*Rule
	for _, rule := range all {
		if rule.File == r.config.Path {
			file = append(file, rule)
		}
	}
	slices.SortFunc(file, func(a, b *Rule) int { return a.Line - b.Line })
	p := Plan{SameAt: -1, At: len(file)}
	p.SameAt = slices.IndexFunc(file, on.only)
	if p.SameAt >= 0 {
		p.Same = file[p.SameAt]
	}
	if action != "deny" {
		for i, rule := range file {
			if rule != p.Same && rule.verdict.Effect != authz.Deny && on.overlaps(rule) && !on.narrower(rule) {
				p.At = i
				break
			}
		}
	}
	place := p.At
	if p.Same != nil {
		place = min(place, p.SameAt)
	}
	for _, rule := range all {
		if action == "deny" || rule == p.Same || rule.Action == action || !on.overlaps(rule) {
			continue
		}
		switch narrower := on.narrower(rule); {
		case rule.verdict.Effect == authz.Deny && !narrower:
			p.Deny = append(p.Deny, rule)
		case rule.verdict.Effect == authz.Deny, narrower && slices.Contains(file[:place], rule):
			p.First = append(p.First, rule)
		}
	}
	return p
}

// only reports whether a rule is about the subject and about nothing more or less.
func (on Subject) only(r *Rule) bool {
	var tools []string
	if on.Tool != "" {
		tools = []string{on.Tool}
	}
	return slices.Equal(r.Server, []string{on.Server}) && slices.Equal(r.Tool, tools) && !r.conditional() &&
		len(r.Resource)+len(r.Prompt) == 0
}

// conditional reports whether a rule is about some calls of a tool only.
func (r *Rule) conditional() bool {
	return len(r.Session)+len(r.Client) > 0 || r.Annotations != nil || r.If != ""
}

// overlaps reports whether a rule may be about some of the subject's calls.
func (on Subject) overlaps(r *Rule) bool {
	switch {
	case !among(r.Server, on.Server):
		return false
	case on.Tool == "":
		return true
	case len(r.Resource)+len(r.Prompt) > 0:
		return false
	case len(r.Tool) == 0:
		return true
	}
	return slices.ContainsFunc(r.Tool, func(p string) bool { return meet(p, on.Tool) })
}

// meet reports whether a name may match two patterns.
func meet(a, b string) bool {
	ends := func(pattern string) (head, tail string) {
		return pattern[:strings.Index(pattern, "*")], pattern[strings.LastIndex(pattern, "*")+1:]
	}
	if !strings.Contains(a, "*") || !strings.Contains(b, "*") {
		return authz.Matches(a, b) || authz.Matches(b, a)
	}
	headA, tailA := ends(a)
	headB, tailB := ends(b)
	return (strings.HasPrefix(headA, headB) || strings.HasPrefix(headB, headA)) && (strings.HasSuffix(tailA, tailB) || strings.HasSuffix(tailB, tailA))
}

// narrower reports whether a rule is about a part of the subject's calls only.
func (on Subject) narrower(r *Rule) bool {
	switch {
	case r.conditional():
		return true
	case on.Tool == "":
		return len(r.Tool)+len(r.Resource)+len(r.Prompt) > 0 && !slices.Contains(r.Tool, "*")
	case len(r.Tool) == 0:
		return false
	}
	return !slices.ContainsFunc(r.Tool, func(p string) bool { return p == on.Tool || authz.Matches(p, on.Tool) })
}

// Usual returns what is decided about calls of a tool by rules that look neither at
// the arguments nor at the session and the client.
func (r *Rules) Usual(call authz.CallTool) authz.Verdict {
	s := *r.current(true)
	if s.broken != nil {
		return s.verdict(authz.Principal{}, call, nil)
	}
	usual := func(rules []*Rule) []*Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(r *Rule) bool { return r.If != "" || len(r.Session)+len(r.Client) > 0 })
	}
	s.denying, s.others, s.approved = usual(s.denying), usual(s.others), usual(s.approved)
	return s.decide(&subject{server: call.Server.Name, tool: &call, args: &arguments{raw: call.Arguments}}, nil)
}

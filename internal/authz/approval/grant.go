package approval

import (
	"slices"

	"github.com/sallyport/sallyport/internal/authz"
)

// grant is an answer for calls to come. It belongs to the rule that asked, and to
// the server that the question was about.
type grant struct {
	owner, rule                    string
	action, server, item, identity string
	execution, session             string    // one of them
	alike                          *likeness // nil: whatever the arguments are
	left                           int       // negative: any number
	answer                         authz.Answer
}

// likeness is what the arguments of a call must be like.
type likeness struct {
	fixed []argument // have these values
	all   []string   // must be there
	may   []string   // may be there, besides those
}

// likenessOf describes the calls that a person saw. Those named in vary may be
// missing, there, or have any value.
func likenessOf(seen []*call, vary []string) *likeness {
	var l likeness
	l.fixed, _ = compare(seen)
	l.fixed = slices.DeleteFunc(l.fixed, func(a argument) bool { return slices.Contains(vary, a.name) })
	l.may = slices.Clone(vary)
	for _, c := range seen {
		for _, a := range c.arguments {
			if !slices.Contains(l.may, a.name) {
				l.may = append(l.may, a.name)
			}
		}
	}
	for _, name := range l.may {
		lacks := func(c *call) bool { _, has := c.value(name); return !has }
		if !slices.Contains(vary, name) && !slices.ContainsFunc(seen, lacks) {
			l.all = append(l.all, name)
		}
	}
	return &l
}

func (l *likeness) of(s *subject) bool {
	for _, a := range l.fixed {
		if v, has := s.value(a.name); !has || v != a.value {
			return false
		}
	}
	for _, name := range l.all {
		if _, has := s.value(name); !has {
			return false
		}
	}
	return !slices.ContainsFunc(s.arguments, func(a argument) bool { return !slices.Contains(l.may, a.name) })
}

// covered returns the earlier answer that covers a call about which a rule asks, or
// nil. The lock is held.
func (b *Book) covered(p authz.Principal, rule string, s *subject) *grant {
	if s.single {
		return nil
	}
	for _, g := range b.grants {
		if g.left != 0 && g.covers(p, rule, s) {
			return g
		}
	}
	return nil
}

func (g *grant) covers(p authz.Principal, rule string, s *subject) bool {
	if g.owner != p.Owner || g.rule != rule || g.action != s.action || g.server != s.server || g.item != s.item || g.identity != s.identity {
		return false
	}
	if g.execution != "" && g.execution != p.Request || g.session != "" && g.session != p.SessionKey {
		return false
	}
	return g.alike == nil || g.alike.of(s)
}

// use counts a call that the answer covers.
func (g *grant) use() authz.Answer {
	if g.left > 0 {
		g.left--
	}
	return g.answer
}

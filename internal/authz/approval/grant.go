package approval

import (
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/authz"
)

// grant is an answer for calls to come. It belongs to the rule that asked, and to
// the server that the question was about.
type grant struct {
	owner, rule        string
	of                 target
	execution, session string    // one of them
	alike              *likeness // nil: whatever the arguments are
	left               int       // negative: any number
	answer             authz.Answer
}

// likeness is what the arguments of a call must be like.
type likeness struct {
	fixed []argument // have these values
	must  []string   // be there
	may   []string   // be there: no others
}

// likenessOf describes the calls that a person saw. Their arguments that vary names
// may be missing or have any value.
func likenessOf(seen []*call, vary []string) (*likeness, error) {
	var l likeness
	fixed, varies := compare(seen)
	for _, a := range fixed {
		l.may = append(l.may, a.name)
		if !slices.Contains(vary, a.name) {
			l.fixed = append(l.fixed, a)
		}
	}
	l.may = append(l.may, varies...)
	for _, name := range vary {
		if !slices.Contains(l.may, name) {
			return nil, fmt.Errorf("the calls have no argument %s", word(name))
		}
	}
	for _, name := range varies {
		lacks := func(c *call) bool { _, has := c.value(name); return !has }
		if !slices.Contains(vary, name) && !slices.ContainsFunc(seen, lacks) {
			l.must = append(l.must, name)
		}
	}
	return &l, nil
}

func (l *likeness) of(s *subject) bool {
	for _, a := range l.fixed {
		if v, has := s.value(a.name); !has || v != a.value {
			return false
		}
	}
	for _, name := range l.must {
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
	if g.owner != p.Owner || g.rule != rule || g.of != s.target {
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

package approval

import "github.com/sallyport/sallyport/internal/authz"

// grant is an answer for calls to come.
type grant struct {
	owner, action, server, item string
	execution, session          string // one of them
	fixed                       []argument
	left                        int // negative: any number
	answer                      authz.Answer
}

// covered returns the earlier answer that covers a call, or nil. The lock is held.
func (b *Book) covered(p authz.Principal, s *subject) *grant {
	if s.single {
		return nil
	}
	for _, g := range b.grants {
		if g.left != 0 && g.covers(p, s) {
			return g
		}
	}
	return nil
}

func (g *grant) covers(p authz.Principal, s *subject) bool {
	if g.owner != p.Owner || g.action != s.action || g.server != s.server || g.item != s.item {
		return false
	}
	if g.execution != "" && g.execution != p.Request || g.session != "" && g.session != p.SessionKey {
		return false
	}
	for _, a := range g.fixed {
		if v, has := s.value(a.name); !has || v != a.value {
			return false
		}
	}
	return true
}

// use counts a call that the answer covers.
func (g *grant) use() authz.Answer {
	if g.left > 0 {
		g.left--
	}
	return g.answer
}

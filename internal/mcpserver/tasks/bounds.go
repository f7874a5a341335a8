package tasks

import (
	"slices"
)

// tidy forgets tasks whose time is up, here and on disk, and does so again later.
func (s *Set) tidy() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.work.Add(1)
	defer s.work.Done()
	gone := s.expire(Owner{})
	s.mu.Unlock()
	for _, id := range gone {
		s.forget(id)
	}
	s.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tidies.Reset(sweepEvery)
	}
}

// Room reports whether another call of the client may become a task. Results that
// the client knows make room.
func (s *Set) Room(owner Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room(owner)
}

// same reports whether tasks of both count together.
func (o Owner) same(other Owner) bool { return o.Name == other.Name && o.ID == other.ID }

// room is Room. The lock is held.
func (s *Set) room(owner Owner) bool {
	count, size := 0, 0
	for _, t := range s.list {
		if t.owner.same(owner) && !t.seen {
			count, size = count+1, size+t.size
		}
	}
	return !s.closed && count < maxTasks && size < maxBytes
}

// drop gives back what the result of a task takes. The lock is held.
func (s *Set) drop(t *Task) {
	if t.charged {
		s.budget.Release(int64(t.size))
	}
	t.charged = false
}

// expire forgets the tasks whose time is up, and those of a client whose end was
// seen where there are too many. It returns their IDs. The lock is held.
func (s *Set) expire(owner Owner) (gone []string) {
	count, size := 0, 0
	for _, t := range s.list {
		if t.owner.same(owner) {
			count, size = count+1, size+t.size
		}
	}
	now := stamp()
	s.list = slices.DeleteFunc(s.list, func(t *Task) bool {
		over := t.owner.same(owner) && t.seen && (count > maxTasks || size > maxBytes)
		if !t.ended() || !over && now.Before(t.expires) {
			return false
		}
		if t.owner.same(owner) {
			count, size = count-1, size-t.size
		}
		s.drop(t)
		gone = append(gone, t.id)
		return true
	})
	return gone
}

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sallyport/sallyport/internal/session/archive"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/wire"
)

// Export writes the session to w as an archive: its files, and the source of
// the code that ran. Variables and processes are not included. A suspended
// session stays suspended.
func (s *Session) Export(ctx context.Context, w io.Writer) error {
	b, done, err := s.look(ctx, "its files were exported")
	if err != nil {
		return err
	}
	defer done()
	i := s.info()
	limit := b.limits.WorkspaceBytes
	facts := archive.Facts{Name: s.key.Name, Created: i.Created, Exported: time.Now().UTC(), Executions: i.Executions}
	a, err := archive.NewWriter(w, facts, limit)
	if err != nil {
		return err
	}
	defer a.Close()
	var failed error
	err = b.ask(ctx, s.config.Grace, taskTime(limit), wire.TaskTakeOut, func(call wire.Call) (any, error) {
		if call.Method != wire.MethodTaskFile {
			return nil, unexpected(call)
		}
		f, err := wire.DecodeTaskFile(call.Params)
		if err != nil {
			return nil, err
		}
		failed = a.Add(f)
		return nil, failed
	})
	if failed != nil {
		err = failed // whatever the guest made of it
	}
	if err != nil {
		return fmt.Errorf("taking the files out: %w", err)
	}
	s.history.Flush()
	if err := a.AddCode(i.Log); err != nil {
		return err
	}
	return a.Finish()
}

// look waits for its turn and returns the session's sandbox, or a copy of it if the
// session is suspended, which it stays. why is that of idleAgain. The caller calls done.
func (s *Session) look(ctx context.Context, why string) (b *instance, done func(), err error) {
	t := s.queue.enter()
	if err = s.queue.wait(ctx, t); err == nil {
		if b = s.instance; b == nil {
			b, err = s.copyOfSuspended(ctx)
		} else {
			err = b.unpause(ctx)
		}
	}
	if err != nil {
		s.queue.leave(t)
		return nil, nil, err
	}
	return b, func() {
		defer s.queue.leave(t)
		if b != s.instance {
			b.destroy()
			return
		}
		s.idleAgain(why)
	}, nil
}

// idleAgain returns the sandbox to its idle state after the host used it, or
// records that it did not survive.
func (s *Session) idleAgain(why string) {
	if s.instance.dead() {
		s.drop("the sandbox was lost while " + why + ": " + s.instance.deathReason())
		return
	}
	s.instance.startIdle(s.config.Background)
}

// copyOfSuspended starts a sandbox from a suspended session's snapshot. The
// session stays suspended.
func (s *Session) copyOfSuspended(ctx context.Context) (*instance, error) {
	if s.checkpoint == nil {
		return nil, errors.New("it has no state: there is nothing in it")
	}
	limits := s.checkpoint.Record.Limits
	if !s.key.own() {
		unlock, err := s.checkpoint.Store.Lock(s.key.file())
		if err != nil {
			return nil, err
		}
		defer unlock()
		record, err := s.checkpoint.Store.Read(s.key.file())
		if err != nil {
			return nil, err
		}
		if record == nil || record.Status != hibernate.Suspended {
			return nil, errors.New("it has no state: there is nothing in it")
		}
		if err := fits(record, &s.config.Template); err != nil {
			return nil, err
		}
		limits = record.Limits
		s.status.mu.Lock()
		s.status.executions, s.status.since = record.Executions, record.Created
		s.status.mu.Unlock()
	} else if !s.checkpoint.Suspended {
		return nil, errors.New("it has no state: there is nothing in it")
	}
	return s.restore(ctx, limits)
}

// Import creates a session whose workspace has the files of an archive. It runs
// no code.
func (s *Set) Import(ctx context.Context, key Key, a *archive.Reader, t *Template) error {
	if key.own() {
		return fmt.Errorf("%q is the name of every client's own session; choose another", key.Name)
	}
	one, err := s.Get(key, t)
	if err != nil {
		return err
	}
	return one.fill(ctx, a)
}

// fill puts files into a session that has no state yet.
func (s *Session) fill(ctx context.Context, a *archive.Reader) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if s.instance != nil {
		return s.taken()
	}
	if s.checkpoint != nil {
		if r, err := s.checkpoint.Store.Read(s.key.file()); err != nil || r != nil {
			return errors.Join(s.taken(), err)
		}
		if _, err := s.checkpoint.Claim(); err != nil {
			return err
		}
		if s.checkpoint.Suspended { // suspended just now
			s.checkpoint.Leave("")
			return s.taken()
		}
	}
	b, err := s.begin(ctx, nil)
	s.running.Store(err == nil)
	if err != nil {
		return err
	}
	s.instance = b
	s.opened(b)
	err = b.ask(ctx, s.config.Grace, taskTime(b.limits.WorkspaceBytes), wire.TaskPutIn, giving(a.NextPart))
	if err != nil {
		s.instance.destroy()
		s.instance = nil
		s.running.Store(false)
		s.status.closed("", "")
		return errors.Join(fmt.Errorf("putting the files in: %w", err), s.checkpoint.Forget())
	}
	b.startIdle(s.config.Background)
	return nil
}

func (s *Session) taken() error {
	return fmt.Errorf("there is a session %s already; give another name, or remove it", s.key.Name)
}

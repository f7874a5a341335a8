package cli

import (
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/session/hibernate"
)

type sessionsResetCmd struct {
	Names []string `arg:"" help:"The sessions." complete:"sessions"`
}

// Help implements kong's HelpProvider.
func (*sessionsResetCmd) Help() string {
	return `If code is running in a session, the reset waits until it has ended.

Example:
  sallyport sessions reset analysis`
}

// Run implements the command.
func (c *sessionsResetCmd) Run(u *ui) error {
	return u.each(c.Names, u.saying("was reset", func(s *app.Sessions, k *app.KnownSession) error { return s.Forget(u.ctx, k, false) }))
}

type sessionsRemoveCmd struct {
	Names []string `arg:"" help:"The sessions." complete:"sessions"`
}

// Help implements kong's HelpProvider.
func (*sessionsRemoveCmd) Help() string {
	return `Deletes a session's variables, files and log. To keep the files, write them to an archive with 'sallyport sessions export' first.

Example:
  sallyport sessions rm analysis scratch`
}

// Run implements the command.
func (c *sessionsRemoveCmd) Run(u *ui) error {
	return u.each(c.Names, u.saying("is removed", func(s *app.Sessions, k *app.KnownSession) error { return s.Forget(u.ctx, k, true) }))
}

// saying prints what happened to a session, if do succeeded.
func (u *ui) saying(what string, do func(*app.Sessions, *app.KnownSession) error) func(*app.Sessions, *app.KnownSession) error {
	return func(s *app.Sessions, k *app.KnownSession) error {
		err := do(s, k)
		if err == nil {
			fmt.Fprintf(u.stdio.Err, "%s %s.\n", printable(k.Address), what)
		}
		return err
	}
}

type sessionsSuspendCmd struct {
	Names []string `arg:"" help:"The sessions." complete:"sessions"`
}

// Help implements kong's HelpProvider.
func (*sessionsSuspendCmd) Help() string {
	return `The next use of a suspended session resumes it with its variables, in any process. Sessions are suspended automatically when they have not been used for some time (sessions.idle), and when their Sallyport ends.

Example:
  sallyport sessions suspend analysis`
}

// Run implements the command.
func (c *sessionsSuspendCmd) Run(u *ui) error {
	return u.each(c.Names, func(_ *app.Sessions, k *app.KnownSession) error {
		switch {
		case k.Status == hibernate.Suspended:
			fmt.Fprintf(u.stdio.Err, "%s is suspended already.\n", printable(k.Address))
			return nil
		case k.Status == hibernate.Gone:
			return fmt.Errorf("there is nothing left of it to save: %s", k.Lost)
		case k.Status == hibernate.Unused:
			return errors.New("it has no state to save yet")
		case k.Control == nil:
			return fmt.Errorf("process %d, where it is running, does not answer; when that process ends, the session is suspended", k.Process)
		}
		return k.Control.Suspend(u.ctx, k.Key())
	})
}

type sessionsResumeCmd struct {
	In    int      `help:"Process to resume them in (default: the one that was started last)." placeholder:"PID"`
	Names []string `arg:"" help:"The sessions." complete:"sessions"`
}

// Help implements kong's HelpProvider.
func (*sessionsResumeCmd) Help() string {
	return `Suspended sessions are resumed when they are used. Resuming one earlier saves its next use the time; after that, only the process that has it can use it.

Example:
  sallyport sessions resume analysis`
}

// Run implements the command.
func (c *sessionsResumeCmd) Run(u *ui) error {
	return u.each(c.Names, func(s *app.Sessions, k *app.KnownSession) error {
		switch {
		case k.Status == hibernate.Running:
			fmt.Fprintf(u.stdio.Err, "%s is running already, in process %d.\n", printable(k.Address), k.Process)
			return nil
		case k.Status == hibernate.Gone:
			return fmt.Errorf("there is nothing left of it to resume: %s", k.Lost)
		case k.Status == hibernate.Unused:
			return errors.New("it has no state to resume yet")
		}
		client := k.Control
		if client == nil {
			_, found, err := s.Process(c.In)
			if err != nil {
				return err
			}
			client = found
		}
		return client.Resume(u.ctx, k.Key())
	})
}

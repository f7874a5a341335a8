package cli

import (
	"errors"
	"fmt"

	"sallyport/internal/control"
	"sallyport/internal/session"
)

type sessionsResetCmd struct {
	Names []string `arg:"" help:"The sessions."`
}

// Help implements kong's HelpProvider.
func (*sessionsResetCmd) Help() string {
	return `Code that runs in a session ends first: then its turn has come.

Example:
  sallyport sessions reset analysis`
}

// Run implements the command.
func (c *sessionsResetCmd) Run(a *app) error {
	return a.each(c.Names, a.saying("was reset", func(s *sessions, k *known) error { return s.forget(a, k, false) }))
}

type sessionsRemoveCmd struct {
	Names []string `arg:"" help:"The sessions."`
}

// Help implements kong's HelpProvider.
func (*sessionsRemoveCmd) Help() string {
	return `Nothing is left of a session: variables, files, log. 'sallyport sessions export' writes its files to an archive first.

Example:
  sallyport sessions rm analysis scratch`
}

// Run implements the command.
func (c *sessionsRemoveCmd) Run(a *app) error {
	return a.each(c.Names, a.saying("is removed", func(s *sessions, k *known) error { return s.forget(a, k, true) }))
}

// saying says what became of a session, when that worked.
func (a *app) saying(what string, do func(*sessions, *known) error) func(*sessions, *known) error {
	return func(s *sessions, k *known) error {
		err := do(s, k)
		if err == nil {
			fmt.Fprintf(a.stdio.Err, "%s %s.\n", printable(k.Address), what)
		}
		return err
	}
}

// forget resets a session, and removes its log where all is set.
func (s *sessions) forget(a *app, k *known, all bool) error {
	if k.client != nil {
		do := k.client.Reset
		if all {
			do = k.client.Remove
		}
		err := do(a.ctx, k.asked())
		if !errors.Is(err, session.ErrUnknown) {
			return err
		}
		if k.Unnamed {
			return nil // it has not been used yet
		}
	}
	return s.shelf.Reset(k.Name, all)
}

type sessionsHibernateCmd struct {
	Names []string `arg:"" help:"The sessions."`
}

// Help implements kong's HelpProvider.
func (*sessionsHibernateCmd) Help() string {
	return `A session's next use wakes it, with its variables, in whatever process. Sessions do this by themselves when they have not been used for some time (sessions.idle), and when their Sallyport ends.

Example:
  sallyport sessions hibernate analysis`
}

// Run implements the command.
func (c *sessionsHibernateCmd) Run(a *app) error {
	return a.each(c.Names, func(_ *sessions, k *known) error {
		switch {
		case k.Status == session.Asleep:
			fmt.Fprintf(a.stdio.Err, "%s sleeps already.\n", printable(k.Address))
			return nil
		case k.Status == session.Gone:
			return fmt.Errorf("nothing is left of it to save: %s", k.Lost)
		case k.Status == session.Unused:
			return errors.New("it has no state to save yet")
		case k.client == nil:
			return fmt.Errorf("process %d, where it is awake, does not answer; when that process ends, the session sleeps", k.Process)
		}
		return k.client.Hibernate(a.ctx, k.asked())
	})
}

type sessionsWakeCmd struct {
	In    int      `help:"Process to wake them in (default: the one that was started last)." placeholder:"PID"`
	Names []string `arg:"" help:"The sessions."`
}

// Help implements kong's HelpProvider.
func (*sessionsWakeCmd) Help() string {
	return `Sessions wake by themselves when they are used. Waking one before that spares its next use the time; only the process that has it can use it then.

Example:
  sallyport sessions wake analysis`
}

// Run implements the command.
func (c *sessionsWakeCmd) Run(a *app) error {
	return a.each(c.Names, func(s *sessions, k *known) error {
		switch {
		case k.Status == session.Awake:
			fmt.Fprintf(a.stdio.Err, "%s is awake already, in process %d.\n", printable(k.Address), k.Process)
			return nil
		case k.Status == session.Gone:
			return fmt.Errorf("nothing is left of it to wake: %s", k.Lost)
		case k.Status == session.Unused:
			return errors.New("it has no state to wake yet")
		}
		client := k.client
		if client == nil {
			_, found, err := s.process(c.In)
			if err != nil {
				return err
			}
			client = found
		}
		return client.Wake(a.ctx, k.asked())
	})
}

// process is the running Sallyport of that number, or the last one that was
// started, among those with the same sessions.
func (s *sessions) process(pid int) (*control.Process, *control.Client, error) {
	for i := len(s.processes) - 1; i >= 0; i-- {
		if p := s.processes[i]; p.StateDir == s.stateDir && (pid == 0 || p.PID == pid) {
			return p, s.clients[p], nil
		}
	}
	if pid != 0 {
		return nil, nil, fmt.Errorf("no Sallyport that serves is process %d; 'sallyport sessions' lists them as default@PROCESS", pid)
	}
	return nil, nil, errors.New("no Sallyport serves a client now that could have it awake; it wakes by itself when it is used")
}

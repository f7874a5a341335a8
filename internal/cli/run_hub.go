package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/hub"
	"github.com/sallyport/sallyport/internal/hub/execution"
)

// runClient is what 'sallyport run' calls itself.
const runClient = "sallyport run"

// An executor runs a program: the broker of this process, or a hub.
type executor interface {
	Execute(context.Context, broker.Request) *broker.Result
}

// hubPatience is how much longer than the code (timeouts.grace) a hub may take to
// answer when the user wants to end the program.
const hubPatience = 10 * time.Second

// joinHub connects to the hub of the settings. It returns nil where none runs, or
// none can be used: nothing has run there yet.
func (u *ui) joinHub(f *composeFlags, session string) (_ *execution.Client, leave func(), err error) {
	place, err := u.hubPlace()
	if err != nil {
		return nil, nil, nil // constructing a sandbox says why
	}
	about, err := json.Marshal(u.origin(f))
	if err != nil {
		return nil, nil, err
	}
	conn, err := place.Find(u.ctx, hub.Hello{Client: hub.NewID(), Process: os.Getpid(), Run: true, About: about}, func() bool {
		running, _, _ := u.Hubs(u.ctx)
		return slices.ContainsFunc(running, func(h app.RunningHub) bool { return h.Hub.Key == place.Key })
	})
	var refused *hub.Refused
	switch {
	case conn == nil && err == nil:
		return nil, nil, nil
	case errors.As(err, &refused), u.ctx.Err() != nil:
		return nil, nil, err
	case err != nil:
		u.Log.Warn("the program runs in a process of its own, because the hub cannot be used", "reason", err)
		return nil, nil, nil
	}
	return &execution.Client{
		Conn: conn, Log: asideWriter{u}, Patience: u.Settings.Timeouts.Grace + hubPatience,
		Lost: hub.Lost(conn.Hub, "the program", session),
	}, func() { _ = conn.Close() }, nil
}

// hubRun is a client of the hub that runs one program.
type hubRun struct{ *hubClient }

// Serve implements hub.Client.
func (c *hubRun) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	h := execution.Host{
		Execute: c.execute, Principal: authz.Local(runClient), Lines: c.logs.lines, Files: c.hub.files,
		Questions: func(ctx context.Context, asked func(text string)) {
			followQuestions(ctx, c.Approvals, c.Broker.ID(), asked)
		},
		Before: func(ctx context.Context, servers []string, status func(string)) {
			for _, p := range problemsOf(c.Library.Snapshot(), servers) {
				fmt.Fprintln(c.logs, "sallyport: warning:", p)
			}
			if p := c.Core.PendingImage(ctx); p != nil {
				await(ctx, p, func(stage string, done, total int64) {
					status((&meter{what: awaited(c.Settings), stage: stage, have: done, total: total}).line())
				})
			}
		},
	}
	return h.Serve(ctx, in, out)
}

// execute runs a program. Servers that are not known, or may be several, the broker
// refuses.
func (c *hubRun) execute(ctx context.Context, req broker.Request) *broker.Result {
	if servers, err := serversNamed(c.Library.Snapshot(), req.Servers); err == nil {
		req.Servers = servers
	}
	return c.Broker.Execute(ctx, req)
}

// maxRunFiles bounds the files that the programs of all 'sallyport run' send to a
// hub at one time.
const maxRunFiles = 1 << 30

// host returns what runs the program: the hub if one runs with these settings, or
// this process, as a System.
func (c *runCmd) host(u *ui, alone bool) (by executor, sys *app.System, done func(), err error) {
	if !alone && u.Settings.Hub.Enabled {
		by, done, err := u.joinHub(&c.composeFlags, c.Session)
		if by != nil || err != nil {
			if !u.quiet {
				u.starts = u.newStarts()
			}
			if by != nil {
				return by, nil, done, err
			}
			return nil, nil, done, err
		}
	}
	if sys, err = u.compose(&c.composeFlags); err != nil {
		return nil, nil, nil, err
	}
	adopted := sys.Adopt()
	return sys.Broker, sys, func() {
		adopted()
		sys.Close()
	}, nil
}

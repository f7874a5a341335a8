package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/socket"
)

// controlDir is the directory of the control sockets in a runtime directory.
const controlDir = "control"

// Sessions is what a person does with the sessions of this process.
func (c *Core) Sessions() control.Sessions { return c.broker }

// Answer lets the user's other processes ask this one about its sessions, until
// end is called, and publishes metrics where that is set. about adds who is served;
// stop is control.Config.Stop. Serving clients does not depend on this.
func (c *Core) Answer(about func(*control.Process), stop func(context.Context, time.Duration) error) (end func()) {
	a, started, boot := c.app, time.Now().UTC(), sinceBoot()
	var server *control.Server
	dir, err := a.Env.runtimeDir()
	if err == nil {
		server, err = control.Listen(filepath.Join(dir, controlDir), control.Config{
			Sessions: c.broker, Approvals: c.Approvals,
			About: func() control.Process {
				p := control.Process{PID: os.Getpid(), Version: a.Version, Started: started, StateDir: a.Settings.StateDir, SinceBoot: boot}
				c.pool.Failing(func(server, class string, times int) {
					p.Failing = append(p.Failing, control.Failing{Server: server, Class: class, Times: times})
				})
				about(&p)
				return p
			},
			Stop:    stop,
			Metrics: c.Metrics,
			Log:     a.Log,
		})
	}
	published := c.publishMetrics()
	if err != nil {
		if !errors.Is(err, socket.ErrUnsupported) {
			a.Log.Warn("'sallyport sessions' will not see this process", "error", err)
		}
		return published
	}
	c.Approvals.Reap()
	go func() { _, _ = control.Find(filepath.Join(dir, controlDir)) }() // which removes what killed processes left
	return func() {
		server.Close()
		published()
	}
}

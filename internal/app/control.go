package app

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/socket"
)

// controlDir is the directory of the control sockets in a runtime directory.
const controlDir = "control"

// Answer lets the user's other processes ask this one about its sessions, until
// end is called. client returns the name of the client that is served. Serving
// it does not depend on this.
func (c *Core) Answer(client func() string) (end func()) {
	a, started := c.app, time.Now().UTC()
	var server *control.Server
	dir, err := a.Env.runtimeDir()
	if err == nil {
		server, err = control.Listen(filepath.Join(dir, controlDir), c.broker, func() control.Process {
			return control.Process{PID: os.Getpid(), Version: a.Version, Client: client(), Started: started, StateDir: a.Settings.StateDir}
		}, a.Log)
	}
	if err != nil {
		if !errors.Is(err, socket.ErrUnsupported) {
			a.Log.Warn("'sallyport sessions' will not see this process", "error", err)
		}
		return func() {}
	}
	return server.Close
}

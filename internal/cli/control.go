package cli

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport/internal/control"
)

// controlDir is where the sockets lie, below a runtime directory.
const controlDir = "control"

// clientName is what the client of a serving process calls itself.
type clientName struct {
	mu   sync.Mutex
	name string
}

func (c *clientName) set(name string) {
	const most = 100
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name[:min(most, len(name))]
}

func (c *clientName) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// answer lets the user's other processes ask this one about its sessions, until
// the function that it returns is called. Serving a client does not depend on
// it.
func (a *app) answer(sys *system, client *clientName) (end func()) {
	started := time.Now().UTC()
	version := readVersion().Version
	var server *control.Server
	dir, err := a.env.runtimeDir()
	if err == nil {
		server, err = control.Listen(filepath.Join(dir, controlDir), sys.broker, func() control.Process {
			return control.Process{PID: os.Getpid(), Version: version, Client: client.get(), Started: started, StateDir: a.settings.StateDir}
		}, a.log)
	}
	if err != nil {
		if !errors.Is(err, control.ErrUnsupported) {
			a.log.Warn("'sallyport sessions' will not see this process", "error", err)
		}
		return func() {}
	}
	return server.Close
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/hub"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/socket"
)

const (
	// hubStart bounds how long a hub may take until clients can connect.
	hubStart = 30 * time.Second
	// readyFD is the descriptor on which a hub that was started by a frontend says
	// that clients can connect, or why not.
	readyFD = 3
	ready   = "ready"
)

// hubStartArgs start a hub that takes an order. Parsing them by the whole grammar
// would take as long as the rest.
var hubStartArgs = []string{"hub", "run", "--start"}

// hubOrder is what a frontend tells the hub that it starts.
type hubOrder struct {
	Key    string     `json:"key"`
	Origin app.Origin `json:"origin"`
}

// hubPlace returns where the hub of the settings is found.
func (u *ui) hubPlace() (hub.Place, error) {
	if !socket.Supported {
		return hub.Place{}, socket.ErrUnsupported
	}
	dir, err := u.HubDir()
	if err != nil {
		return hub.Place{}, err
	}
	return hub.Place{Dir: dir, Key: u.HubKey(), Log: u.Log}, nil
}

// startHub starts a hub as a process that outlives this one, and returns when
// clients can connect.
func (u *ui) startHub(ctx context.Context, place hub.Place, origin app.Origin) (err error) {
	order, err := json.Marshal(hubOrder{place.Key, u.HubOrigin(origin)})
	if err != nil {
		return err
	}
	out, err := openHubLog(place)
	if err != nil {
		return err
	}
	defer out.Close()
	in, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	defer write.Close()
	read, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	defer says.Close()
	self, err := executable.Path()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, hubStartArgs...)
	cmd.Args[0] = "sallyport"
	cmd.Env, cmd.Dir = u.HubEnviron(), string(filepath.Separator)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = in, out, out, []*os.File{says}
	cmd.SysProcAttr = detached()
	if err := executable.Start(cmd, executable.Late); err != nil {
		return fmt.Errorf("starting the hub: %w", err)
	}
	go func() { _ = cmd.Wait() }() // where this process outlives it
	defer func() {
		if err != nil { // it must not begin later, next to another
			_ = cmd.Process.Kill()
		}
	}()
	_ = in.Close()
	_ = says.Close()
	defer context.AfterFunc(ctx, func() { _ = read.SetDeadline(time.Unix(1, 0)) })()
	_ = read.SetDeadline(time.Now().Add(hubStart))
	_ = write.SetDeadline(time.Now().Add(hubStart))
	_, _ = write.Write(order) // a hub that does not take it says why, or has ended
	_ = write.Close()
	answer, err := io.ReadAll(io.LimitReader(read, 64<<10))
	switch {
	case err == nil && string(answer) == ready:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the hub did not say that it is ready: %w; see %s", err, hubLog(place))
	case len(answer) == 0:
		return fmt.Errorf("%w; see %s", hub.ErrUnready, hubLog(place))
	}
	return errors.New(string(answer))
}

// hubLog is the file in which the hub of a place writes what it does.
func hubLog(place hub.Place) string { return filepath.Join(place.Dir, place.Key+".log") }

// maxHubLog is how large the log of a hub gets before it begins anew; the
// old one gets another name.
const maxHubLog = 4 << 20

// openHubLog opens the log of a hub.
func openHubLog(place hub.Place) (*os.File, error) {
	root, err := private.Open(place.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := filepath.Base(hubLog(place))
	if info, err := root.Stat(name); err == nil && info.Size() > maxHubLog {
		_ = root.Rename(name, name+".old")
	}
	return root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

type hubRunCmd struct {
	Start bool `help:"Take an order from standard input, as a frontend gives it." hidden:""`
}

// Help implements kong's HelpProvider.
func (*hubRunCmd) Help() string {
	return `Clients start the hub themselves: this command is for a service manager, which may pass a socket to it (LISTEN_FDS), and to look for a mistake. It ends when the hub is idle, and with Ctrl-C.

Example:
  sallyport hub run --log-level debug`
}

// Run implements the command.
func (c *hubRunCmd) Run(u *ui) error {
	u.daemon = true
	if !c.Start {
		if err := u.loadSettings(); err != nil {
			return err
		}
		return u.runHub("", func() {})
	}
	says := os.NewFile(readyFD, "ready")
	tell := sync.OnceFunc(func() {
		_, _ = io.WriteString(says, ready)
		_ = says.Close()
	})
	err := c.ordered(u, tell)
	if err != nil && !errors.Is(err, hub.ErrIdle) {
		_, _ = io.WriteString(says, err.Error()) // unless it is closed
		_ = says.Close()
	}
	return err
}

// ordered runs the hub that a frontend has asked for.
func (c *hubRunCmd) ordered(u *ui, tell func()) error {
	var order hubOrder
	if err := json.NewDecoder(io.LimitReader(u.stdio.In, 16<<20)).Decode(&order); err != nil {
		return fmt.Errorf("the order of the frontend: %w", err)
	}
	o := order.Origin
	u.App = &app.App{Env: app.NewEnvironment(o.Environ), Dir: o.Dir, Version: u.Version, Life: u.ctx}
	set, err := u.Env.LoadSettings(o.Dir, o.ConfigFile, o.Flags)
	if err != nil {
		return err
	}
	u.Settings, u.Log = set, newLogger(u.stdio.Err, set.Log, true, false)
	return u.runHub(order.Key, tell)
}

// runHub serves clients until no client needs the hub.
func (u *ui) runHub(want string, tell func()) error {
	place, err := u.hubPlace()
	if err != nil {
		return err
	}
	if want != "" && want != place.Key {
		return errors.New("the settings changed while the hub was started: try again")
	}
	if want != "" { // otherwise its terminal or service manager is to end it
		if err := u.Detach(u.ctx); err != nil {
			u.Log.Debug("the hub stays in the control group of who started it", "reason", err)
		}
	}
	passed, err := inherited(u.Env, u.Log)
	if err != nil {
		return err
	}
	if passed == nil { // a service manager sees to it that its own is the only one
		begun, err := place.Own(u.ctx)
		if err != nil {
			return err
		}
		if !begun {
			tell()
			u.Log.Warn("another hub serves clients already", "key", place.Key)
			return nil
		}
		place.Tidy(u.ctx)
	}
	core, err := u.NewCore(app.Options{})
	if err != nil {
		return err
	}
	h := &hubProcess{ui: u, core: core, tasks: taskSet(u.App), place: place, files: budget.New(maxRunFiles), names: map[string]*attached{}}
	closed := sync.OnceFunc(func() {
		h.tasks.Close(broker.ErrStop)
		core.Close()
	})
	defer closed()
	if passed == nil {
		if passed, err = socket.Listen(place.Dir, place.Key+".sock", u.Log); err != nil {
			return err
		}
	}
	h.server = hub.NewServer(hub.Config{
		Place: place, Listeners: []net.Listener{passed}, Open: h.open,
		Idle: u.Settings.Hub.Idle, Busy: h.busy, Outdated: h.outdated, Close: closed, Log: u.Log,
	})
	defer core.Answer(h.about, h.stop)()
	defer core.Sweep()()
	if core.Books != nil {
		core.Books.Start()
	}
	u.Log.Info("the hub serves clients", "process", os.Getpid(), "key", place.Key, "version", u.Version)
	tell()
	core.CompileAhead()
	err = h.server.Serve(u.ctx)
	u.Log.Info("the hub ends", "reason", err)
	if errors.Is(err, hub.ErrIdle) || errors.Is(err, context.Canceled) || u.ctx.Err() != nil {
		return nil
	}
	return err
}

// hubProcess is a hub that runs.
type hubProcess struct {
	*ui
	core   *app.Core
	tasks  *tasks.Set
	place  hub.Place
	server *hub.Server
	files  *budget.Budget // that programs of 'sallyport run' have sent

	mu    sync.Mutex
	names map[string]*attached // by the ID of the frontend
}

// attached is what the hub tells others of a client.
type attached struct {
	name   *clientName
	dir    string
	broker *broker.Client
}

// inherited returns the socket that a service manager passed, or nil. Protocol:
// sd_listen_fds(3).
func inherited(env app.Environment, log *slog.Logger) (*socket.Listener, error) {
	if env["LISTEN_FDS"] != "1" || env["LISTEN_PID"] != fmt.Sprint(os.Getpid()) {
		return nil, nil
	}
	f := os.NewFile(3, "socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the socket of the service manager: %w", err)
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("the socket of the service manager is not a Unix socket"), l.Close())
	}
	return socket.Inherited(unix, log), nil
}

// open constructs what serves a client.
func (h *hubProcess) open(ctx context.Context, hello hub.Hello) (hub.Client, error) {
	var o app.Origin
	if err := json.Unmarshal(hello.About, &o); err != nil {
		return nil, err
	}
	env := app.NewEnvironment(o.Environ)
	set, err := env.LoadSettings(o.Dir, o.ConfigFile, o.Flags)
	if err != nil {
		return nil, err
	}
	logs := newAside()
	log := slog.New(both{h.Log.With("client", hello.Process).Handler(), newLogger(logs, set.Log, !hello.Run, false).Handler()})
	a := &app.App{Env: env, Dir: o.Dir, Settings: set, Log: log, Version: h.Version, Life: ctx}
	if a.HubKey() != h.place.Key {
		return nil, errors.New("the settings have changed: restart the client")
	}
	client, err := h.core.NewClient(a, o.ServersConfig)
	if err != nil {
		return nil, err
	}
	name := &clientName{}
	of := &attached{name, o.Dir, client.Broker}
	h.mu.Lock()
	h.names[hello.Client] = of
	h.mu.Unlock()
	one := &hubClient{
		served: &served{App: a, Core: h.core, Client: client, tasks: h.tasks, name: name, id: hello.Client},
		hub:    h, id: hello.Client, of: of, logs: logs,
	}
	if hello.Run {
		name.set(runClient)
		client.Broker.Named(runClient)
		return &hubRun{one}, nil
	}
	if hello.Lost {
		one.executor = &bereft{Executor: client.Broker}
	}
	return one, nil
}

// hubClient is a client that the hub knows by name.
type hubClient struct {
	*served
	hub  *hubProcess
	id   string
	of   *attached
	logs *aside
}

// Serve implements hub.Client.
func (c *hubClient) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go c.logs.carry(ctx, out)
	return c.served.Serve(ctx, in, out)
}

// Close implements hub.Client.
func (c *hubClient) Close() {
	c.hub.mu.Lock()
	if c.hub.names[c.id] == c.of { // it may have connected again
		delete(c.hub.names, c.id)
	}
	c.hub.mu.Unlock()
	c.served.Close()
}

// about completes what the hub says of itself.
func (h *hubProcess) about(p *control.Process) {
	of := &control.Hub{
		Key: h.place.Key, Settings: h.HubSettings(), Engine: h.core.EngineName(), Clients: []control.Attached{},
		Log: hubLog(h.place), Idle: h.Settings.Hub.Idle.String(),
	}
	of.Running, of.Waiting = h.core.Executions()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.server.Clients() {
		one := control.Attached{ID: c.ID, Process: c.Process, Since: c.Since}
		if a := h.names[c.ID]; a != nil {
			one.Name, one.Dir = a.name.get(), a.dir
			one.Running, one.Waiting = a.broker.Turns()
		}
		of.Clients = append(of.Clients, one)
	}
	p.Hub = of
}

// busy reports whether something runs for clients that have gone.
func (h *hubProcess) busy() bool { return h.core.Busy() }

// outdated reports whether the executable is no longer what this process runs.
func (h *hubProcess) outdated() bool { return h.Outdated() }

// stop ends the hub once nothing runs, or after wait.
func (h *hubProcess) stop(ctx context.Context, wait time.Duration) error {
	for until := time.Now().Add(wait); h.busy() && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	h.server.Stop()
	return nil
}

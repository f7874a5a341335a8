package app

import (
	"context"
	"errors"
	"fmt"
	"github.com/sallyport/sallyport/internal/store"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/settings"
)

// answerTimeout bounds how long a process may take to list its sessions.
const answerTimeout = 5 * time.Second

// KnownSession is a session that a running process has, or that is on disk.
type KnownSession struct {
	session.Info
	// Address is the name of the session, with the process where the name alone
	// is ambiguous.
	Address string `json:"address"`
	// Control asks the process that has the session. It is nil for a session on
	// disk, and where the process does not answer.
	Control *control.Client `json:"-"`

	process *control.Process // that Control asks
}

// Key returns what identifies the session in its process.
func (k *KnownSession) Key() session.Key {
	return session.Key{Owner: k.Owner, Name: k.Name, Client: k.ClientID}
}

// Sessions are the sessions of all running processes and those on disk.
type Sessions struct {
	All      []KnownSession
	Problems []string // why some may be missing, for people
	Shelf    *session.OfflineSessions

	processes []*control.Process
	clients   map[*control.Process]*control.Client
	stateDir  string
}

// running asks every running Sallyport of the user who it is.
func (a *App) running(ctx context.Context) *Sessions {
	s := &Sessions{clients: map[*control.Process]*control.Client{}, stateDir: a.Settings.StateDir}
	s.ask(ctx, a.Env.runtimeDirs())
	return s
}

// FindSessions asks every running Sallyport of the user and reads the records.
func (a *App) FindSessions(ctx context.Context) *Sessions {
	s := a.running(ctx)
	s.Shelf = session.NewOfflineSessions(session.Options{
		Logger: a.Log, Records: a.state(store.Sessions), Snapshots: a.snapshots(), Logs: a.statePath(store.Logs),
	}, "")
	disk, err := s.Shelf.List()
	if err != nil {
		s.Problems = append(s.Problems, "records of sessions: "+err.Error())
	}
	s.merge(disk)
	return s
}

// ask asks the processes whose sockets are below these runtime directories.
func (s *Sessions) ask(ctx context.Context, dirs []string) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for _, dir := range dirs {
		if dir = filepath.Join(dir, controlDir); seen[dir] {
			continue
		}
		seen[dir] = true
		found, err := control.Find(dir)
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
		for _, c := range found {
			asking.Go(func() {
				p, err := c.Process(ctx)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, control.ErrGone) {
					return // its sessions are on disk now
				}
				if err != nil {
					s.Problems = append(s.Problems, err.Error())
					return
				}
				s.processes, s.clients[&p] = append(s.processes, &p), c
			})
		}
	}
	asking.Wait()
	slices.SortFunc(s.processes, func(a, b *control.Process) int {
		return a.Started.Compare(b.Started)
	})
}

// merge combines the sessions of the processes with those on disk, so that each
// appears once.
func (s *Sessions) merge(disk []session.Info) {
	onDisk := map[string]*session.Info{}
	for i := range disk {
		onDisk[disk[i].Name] = &disk[i]
	}
	for _, p := range s.processes {
		clients := 0
		for _, i := range p.Sessions {
			if i.Unnamed {
				clients++
			}
		}
		for _, i := range p.Sessions {
			k := KnownSession{Info: i, Address: i.Name, process: p, Control: s.clients[p]}
			d := onDisk[i.Name]
			switch {
			case i.Unnamed, p.StateDir != s.stateDir:
				k.Address = i.Name + "@" + strconv.Itoa(p.PID)
				if i.Unnamed && clients > 1 {
					k.Address += "#" + i.ClientID
				}
			case d == nil:
			case d.Status == hibernate.Running && d.Process == p.PID, i.Status == hibernate.Running:
				delete(onDisk, i.Name)
			default:
				continue // it went on without this process
			}
			s.All = append(s.All, k)
		}
	}
	for _, i := range disk {
		if onDisk[i.Name] == nil {
			continue
		}
		answered := slices.ContainsFunc(s.processes, func(p *control.Process) bool { return p.PID == i.Process })
		if i.Status == hibernate.Running && !answered { // otherwise it was resumed after the answer
			s.Problems = append(s.Problems, fmt.Sprintf("process %d, where %s is running, does not answer", i.Process, i.Name))
		}
		s.All = append(s.All, KnownSession{Info: i, Address: i.Name})
	}
	slices.SortStableFunc(s.All, func(a, b KnownSession) int { return b.Used.Compare(a.Used) })
}

// Find returns the session at an address.
func (s *Sessions) Find(address string) (*KnownSession, error) {
	name, process, qualified := strings.Cut(address, "@")
	process, client, _ := strings.Cut(process, "#")
	if name == "" {
		name = broker.DefaultSession
	}
	var found []*KnownSession
	for i := range s.All {
		k := &s.All[i]
		if k.Name == name && (!qualified && (k.process == nil || k.process.StateDir == s.stateDir) ||
			qualified && k.process != nil && strconv.Itoa(k.process.PID) == process && (client == "" || client == k.ClientID)) {
			found = append(found, k)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	var addresses []string
	for _, k := range s.All {
		addresses = append(addresses, k.Address)
	}
	if len(found) > 1 {
		var these []string
		for _, k := range found {
			these = append(these, k.Address)
		}
		return nil, fmt.Errorf("%s is in several processes: name one of %s", address, strings.Join(these, ", "))
	}
	err := fmt.Errorf("%w: %q", session.ErrUnknown, address)
	if near, ok := settings.Nearest(address, addresses, "@"); ok {
		return nil, fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return nil, fmt.Errorf("%w; 'sallyport sessions' lists them", err)
}

// Forget resets a session. With all, it removes its log too.
func (s *Sessions) Forget(ctx context.Context, k *KnownSession, all bool) error {
	if k.Control != nil {
		do := k.Control.Reset
		if all {
			do = k.Control.Remove
		}
		err := do(ctx, k.Key())
		if !errors.Is(err, session.ErrUnknown) {
			return err
		}
		if k.Unnamed {
			return nil // it has not been used yet
		}
	}
	return s.Shelf.Reset(k.Name, all)
}

// Process returns the running Sallyport with this number, or for 0 the one that
// was started last, among those with the same state directory.
func (s *Sessions) Process(pid int) (*control.Process, *control.Client, error) {
	for i := len(s.processes) - 1; i >= 0; i-- {
		if p := s.processes[i]; p.StateDir == s.stateDir && (pid == 0 || p.PID == pid) {
			return p, s.clients[p], nil
		}
	}
	if pid != 0 {
		return nil, nil, fmt.Errorf("no Sallyport that serves is process %d; 'sallyport sessions' lists them as default@PROCESS", pid)
	}
	return nil, nil, errors.New("no Sallyport that serves a client could run it now; it is resumed when it is used")
}

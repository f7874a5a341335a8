package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/clock"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/session/places"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/wire"
)

// ErrUnknown reports that no session has the name.
var ErrUnknown = errors.New("there is no such session")

func (e End) String() string {
	return [...]string{"finished", "exception", "exit", "timeout", "cancelled", "died"}[e]
}

// Info describes a session to the user.
type Info struct {
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"` // empty: the local user
	// Unnamed: it is a client's own session, which ends with the client.
	Unnamed bool `json:"unnamed,omitempty"`
	// ClientID tells the clients of one process apart if Unnamed is set.
	ClientID string `json:"clientId,omitempty"`
	// Environment names the packages that it has; empty: those of the settings.
	Environment string `json:"environment,omitempty"`
	// Folders are those of the host that it sees.
	Folders []sandbox.Mount  `json:"folders,omitempty"`
	Status  hibernate.Status `json:"status"`
	Process int              `json:"process,omitempty"` // that runs it
	Client  string           `json:"client,omitempty"`  // that it is the own session of, or of that process
	// Users are the connected clients that have used it, the first one first.
	Users   []User    `json:"users,omitempty"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
	// Executions is the number of its executions; Waiting is how many of them
	// run now or wait for their turn.
	Executions uint64 `json:"executions"`
	Waiting    int    `json:"waiting,omitempty"`
	// Turn says which of how many executions, those of other sessions and clients
	// included, its next one is that wait for a place to run; empty: it does not wait.
	Turn string `json:"turn,omitempty"`
	// Memory and CPU are what its sandbox uses now; nil is unknown.
	Memory *int64         `json:"memoryBytes,omitempty"`
	CPU    *time.Duration `json:"cpuNanoseconds,omitempty"`
	Disk   int64          `json:"diskBytes,omitempty"` // of its snapshot
	// Background counts what the last execution left running, and Running names
	// some of it, in the sandbox's own words.
	Background wire.Background `json:"background,omitzero"`
	Running    []string        `json:"running,omitempty"`
	Lost       string          `json:"lost,omitempty"` // why its state is gone
	Log        string          `json:"log,omitempty"`  // the directory of its log
}

// A User is a client that uses a named session.
type User struct {
	Client string    `json:"client"` // as it calls itself
	ID     string    `json:"clientId"`
	Since  time.Time `json:"since"`
}

// status is what callers can learn about a session without waiting for their
// turn.
type status struct {
	created time.Time // set once

	mu         sync.Mutex
	instance   *instance
	state      hibernate.Status
	lost       string
	executions uint64
	background wire.Background
	running    []string
	since      time.Time    // it has existed, in any process
	begun      bool         // it has had a sandbox in this one
	saving     bool         // its sandbox is ending because it is being saved
	user       *places.Line // whose execution was the last; nil: of no client
}

// opened records the session's new sandbox. The holder of the turn calls it.
func (s *Session) opened(b *instance) {
	b.history.Store(s.history)
	if s.config.Journal.Wants(journal.Usages) {
		b.usageMeter.OnIdle(func(u usage.Usage) {
			s.config.Journal.Publish(&journal.Used{Origin: s.origin(time.Now()), Kind: journal.BySession, Name: s.key.Label(), Usage: u})
		})
	}
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	s.status.instance, s.status.state, s.status.lost, s.status.begun = b, hibernate.Running, "", true
	s.status.background, s.status.running = b.background, b.running
	if s.checkpoint != nil && !s.key.own() {
		s.status.executions = max(s.status.executions, s.checkpoint.Record.Executions)
		s.status.since = s.checkpoint.Record.Created
	}
}

// executed records a client's execution in b.
func (v *status) executed(b *instance, user *places.Line) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.executions++
	v.user = user
	v.background, v.running = b.background, b.running
}

// closed records that the sandbox is gone. A reset leaves nothing.
func (v *status) closed(status hibernate.Status, lost string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.instance, v.state, v.lost = nil, status, lost
	if status != hibernate.Suspended {
		v.background, v.running = wire.Background{}, nil
	}
	if status == "" {
		v.executions, v.since = 0, time.Time{}
	}
}

// usedBy records which client's sandbox this is, until another uses it.
func (v *status) usedBy(user *places.Line) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.user = user
}

func (v *status) lastUser() *places.Line {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.user
}

// save records whether the session is being saved.
func (v *status) save(saving bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.saving = saving
}

func (v *status) isSaving() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.saving
}

func (v *status) count() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.executions
}

// info describes the session now.
func (s *Session) info() Info {
	s.status.mu.Lock()
	b, saving := s.status.instance, s.status.saving
	i := Info{
		Name: s.key.Name, Owner: s.key.Owner, Unnamed: s.key.own(), ClientID: s.key.Client, Status: s.status.state, Process: os.Getpid(), Created: s.status.created, Executions: s.status.executions,
		Waiting: s.Waiting(), Background: s.status.background, Running: slices.Clone(s.status.running), Lost: s.status.lost, Environment: s.config.Environment, Folders: s.config.Mounts,
	}
	if !s.status.since.IsZero() {
		i.Created = s.status.since
	}
	s.status.mu.Unlock()
	if i.Status == "" {
		i.Status = hibernate.Unused
	}
	i.Used = i.Created
	if used := s.used.Load(); s.status.count() > 0 {
		i.Used = s.clock.At(time.Duration(used))
	}
	i.Created, i.Used = i.Created.UTC(), i.Used.UTC()
	if b != nil {
		if b.dead() {
			if !saving {
				i.Status, i.Lost = hibernate.Gone, "its sandbox has ended"
			}
		} else if u, ok := b.usage(); ok {
			i.CPU = &u.CPU
			if u.MemoryBytes > 0 {
				i.Memory = &u.MemoryBytes
			}
		}
	}
	i.Turn = s.parkedAt().Turn()
	i.Log = s.history.Dir()
	if i.Status == hibernate.Suspended && s.checkpoint != nil {
		i.Disk = s.checkpoint.Size()
	}
	return i
}

// List returns an owner's sessions in this process: its clients' own sessions,
// and the named ones that run here or were running here when they were lost.
// For suspended ones, see [OfflineSessions].
func (s *Set) List(owner string) []Info {
	s.mu.Lock()
	var all []*Session
	own := false
	for key, one := range s.sessions {
		if key.Owner == owner {
			all = append(all, one)
			own = own || key.own()
		}
	}
	s.mu.Unlock()
	list := make([]Info, len(all))
	var asking sync.WaitGroup
	for i, one := range all {
		asking.Go(func() { list[i] = one.info() })
	}
	asking.Wait()
	list = slices.DeleteFunc(list, func(i Info) bool {
		return !i.Unnamed && (i.Status == hibernate.Unused || i.Status == hibernate.Suspended)
	})
	if !own {
		list = append(list, Info{Name: DefaultName, Owner: owner, Unnamed: true, Status: hibernate.Unused, Process: os.Getpid(), Created: s.made, Used: s.made})
	}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ClientID, b.ClientID))
	})
	return list
}

// known returns the session of that key, if it has been used in this process.
func (s *Set) known(key Key) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[key]
}

// Written returns what code wrote in an execution of a session that this process
// has; see Session.Written.
func (s *Set) Written(ctx context.Context, key Key, number int64) (string, error) {
	one := s.known(key)
	if one == nil {
		return "", fmt.Errorf("this process has no session %s", key.Name)
	}
	return one.Written(ctx, number, "")
}

// Suspend suspends a session that is running here.
func (s *Set) Suspend(ctx context.Context, key Key) error {
	one := s.known(key)
	if one == nil || !one.running.Load() {
		return fmt.Errorf("%w running in process %d", ErrUnknown, os.Getpid())
	}
	if err := one.Suspend(ctx); err != nil {
		return fmt.Errorf("it was not suspended: %w", err)
	}
	return nil
}

// Resume resumes the session when its turn comes, if it is suspended.
func (s *Session) Resume(ctx context.Context) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	return s.wake(ctx)
}

// wake is Resume for the holder of the turn.
func (s *Session) wake(ctx context.Context) error {
	if s.instance != nil {
		return nil
	}
	if s.life.Err() != nil {
		return ErrClosed
	}
	if s.checkpoint == nil {
		return errNoSuspend
	}
	lost, err := s.checkpoint.Claim()
	if err != nil {
		return err
	}
	if err := s.fits(); err != nil {
		return err
	}
	if !s.checkpoint.Suspended {
		s.checkpoint.Leave(lost)
		if lost != "" {
			return fmt.Errorf("there is nothing left to resume: %s", lost)
		}
		return errors.New("it has no state to resume yet")
	}
	if s.room != nil {
		if err := s.room(ctx, s, false); err != nil {
			s.checkpoint.Leave("")
			return err
		}
	}
	b, err := s.resume(ctx)
	s.running.Store(err == nil)
	if err != nil {
		if s.checkpoint.Suspended {
			s.checkpoint.Leave("")
			return fmt.Errorf("it stays suspended, and cannot be resumed now: %w", err)
		}
		s.lose("the suspended session could not be resumed: " + err.Error())
		s.checkpoint.Leave(s.lost)
		return fmt.Errorf("its state is lost: it could not be resumed: %w", err)
	}
	s.instance, s.notice = b, limitsNotice(b.limits, s.config.Limits)
	s.opened(b)
	s.use() // or it would be suspended at once
	b.startIdle(s.config.Background)
	return nil
}

// Reset forgets a session's state, here or on disk. Its log stays.
func (s *Set) Reset(ctx context.Context, key Key) error {
	one := s.known(key)
	if one == nil {
		return ErrUnknown
	}
	return s.forget(ctx, one)
}

// forget forgets the state of a session because someone asked for it.
func (s *Set) forget(ctx context.Context, one *Session) error {
	began := time.Now()
	if err := one.Reset(ctx); err != nil {
		return err
	}
	s.forgotten(one.key)
	one.changed(ctx, journal.SessionForgotten, "", began)
	return nil
}

// Remove forgets a session's state and its log.
func (s *Set) Remove(ctx context.Context, key Key) error {
	one := s.known(key)
	if one == nil {
		return ErrUnknown
	}
	if err := s.forget(ctx, one); err != nil {
		return err
	}
	return one.history.Remove()
}

// OfflineSessions gives access to an owner's named sessions on disk, of all
// processes.
type OfflineSessions struct {
	hibernator *hibernate.Store
	owner      string
	logs       string
}

// NewOfflineSessions returns the sessions of an owner. It uses the options
// Snapshots, Records, Logs and Logger.
func NewOfflineSessions(options Options, owner string) *OfflineSessions {
	return &OfflineSessions{hibernator: offlineStore(options.withDefaults(), clock.New(options.Now)), owner: owner, logs: options.Logs}
}

// key returns the key of the owner's session of that name.
func (f *OfflineSessions) key(name string) Key { return Key{Owner: f.owner, Name: name} }

// List lists the sessions that have a record or a log. A running one belongs to a
// living process. Records that cannot be read are reported in the error; the
// others are listed.
func (f *OfflineSessions) List() ([]Info, error) {
	files, err := f.hibernator.Files()
	if err != nil {
		return nil, err
	}
	var list []Info
	var errs []error
	for _, file := range files {
		r, err := f.hibernator.Read(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if r == nil || r.Owner != f.owner {
			continue
		}
		key := f.key(r.Name)
		if key.file() != file {
			errs = append(errs, fmt.Errorf("%w: %s names another session", hibernate.ErrDamaged, f.hibernator.RecordPath(file)))
			continue
		}
		i := Info{
			Name: r.Name, Owner: r.Owner, Status: r.Status, Created: r.Created, Used: r.Used, Executions: r.Executions,
			Disk: r.Bytes, Background: r.Background, Running: r.Running, Lost: r.Lost, Environment: r.Environment, Folders: r.Mounts,
		}
		if r.Status == hibernate.Running {
			i.Process = r.Process
			if unlock, err := f.hibernator.Lock(file); err == nil {
				// It may just have been suspended.
				if again, err := f.hibernator.Read(file); err == nil && again != nil {
					i.Status, i.Disk, i.Lost = again.Status, again.Bytes, again.Lost
				}
				unlock()
				if i.Process = 0; i.Status == hibernate.Running {
					i.Status, i.Lost = hibernate.Gone, "the Sallyport that ran this session ended without saving it"
				}
			}
		}
		if sessionlog.Exists(f.logs, key.String()) {
			i.Log = sessionlog.Dir(f.logs, key.String())
		}
		list = append(list, i)
	}
	return append(list, f.onlyLogs(list)...), errors.Join(errs...)
}

// onlyLogs lists the sessions that have nothing left but their log.
func (f *OfflineSessions) onlyLogs(known []Info) []Info {
	var list []Info
	for _, text := range sessionlog.Names(f.logs) {
		name, _, _ := strings.Cut(text, "@")
		// For an owner whose name is too long for a file name, only records
		// tell.
		if key := f.key(name); key.String() == text && key.check() == nil && !slices.ContainsFunc(known, func(k Info) bool { return k.Name == name }) {
			list = append(list, Info{Name: name, Owner: f.owner, Status: hibernate.Unused, Log: sessionlog.Dir(f.logs, text)})
		}
	}
	return list
}

// Reset forgets the state of a session that is not running, and its log if all
// is set. The error is hibernate.ErrElsewhere if a process has the session.
func (f *OfflineSessions) Reset(name string, all bool) error {
	key := f.key(name)
	record, err := f.hibernator.Read(key.file())
	if record == nil && err == nil && !sessionlog.Exists(f.logs, key.String()) {
		return ErrUnknown
	}
	unlock, err := f.hibernator.Lock(key.file())
	if err != nil {
		return err
	}
	defer unlock()
	if all {
		err = sessionlog.Remove(f.logs, key.String())
	}
	return errors.Join(err, f.hibernator.Remove(key.file()))
}

// Total returns the size of all sessions' snapshots on disk, in bytes.
func (f *OfflineSessions) Total() (int64, error) { return f.hibernator.Total() }

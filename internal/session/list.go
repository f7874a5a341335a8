package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/state"
	"sallyport/internal/wire"
)

// ErrUnknown: there is no session of that name.
var ErrUnknown = errors.New("there is no such session")

// Unused is the status of a session that has no state yet.
const Unused Status = "unused"

func (e End) String() string {
	return [...]string{"finished", "exception", "exit", "timeout", "cancelled", "died"}[e]
}

// Info is what there is to say about a session.
type Info struct {
	Name string `json:"name"`
	// Unnamed says that it is the one of a process, which ends with it.
	Unnamed bool      `json:"unnamed,omitempty"`
	Status  Status    `json:"status"`
	Process int       `json:"process,omitempty"` // in which it is awake
	Client  string    `json:"client,omitempty"`  // of that process
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
	// Executions is how many it has had; Waiting how many of them run now or
	// wait for their turn.
	Executions uint64 `json:"executions"`
	Waiting    int    `json:"waiting,omitempty"`
	// Memory and CPU are those of its sandbox now; nil is unknown.
	Memory *int64         `json:"memoryBytes,omitempty"`
	CPU    *time.Duration `json:"cpuNanoseconds,omitempty"`
	Disk   int64          `json:"diskBytes,omitempty"` // of its snapshot
	// Background is what the last execution left running, and Running names
	// some of it: the sandbox's own words.
	Background wire.Background `json:"background,omitzero"`
	Running    []string        `json:"running,omitempty"`
	Lost       string          `json:"lost,omitempty"` // why its state is gone
	Log        string          `json:"log,omitempty"`  // the directory of its log
}

// view is what others are told of a session, who do not wait for their turn.
type view struct {
	created time.Time // set once

	mu         sync.Mutex
	box        *box
	status     Status
	lost       string
	executions uint64
	background wire.Background
	running    []string
	since      time.Time // it exists, in whatever process
	begun      bool      // it has had a sandbox in this one
	saving     bool      // its sandbox ends, because it is being saved
}

// opened notes a sandbox that the session has from now on. The turn's owner
// calls it.
func (s *Session) opened(b *box) {
	b.book.Store(s.book)
	if s.config.Rested != nil {
		b.tally.of(func(spent Spent) { s.config.Rested(s.name, spent) })
	}
	s.view.mu.Lock()
	defer s.view.mu.Unlock()
	s.view.box, s.view.status, s.view.lost, s.view.begun = b, Awake, "", true
	s.view.background, s.view.running = b.background, b.running
	if s.nap != nil && !s.nap.own {
		s.view.executions = max(s.view.executions, s.nap.record.Executions)
		s.view.since = s.nap.record.Created
	}
}

// executed notes an execution in b.
func (v *view) executed(b *box) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.executions++
	v.background, v.running = b.background, b.running
}

// closed notes that there is no sandbox any more. A reset leaves nothing.
func (v *view) closed(status Status, lost string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.box, v.status, v.lost = nil, status, lost
	if status != Asleep {
		v.background, v.running = wire.Background{}, nil
	}
	if status == "" {
		v.executions, v.since = 0, time.Time{}
	}
}

// save notes that the session is being saved, or no more.
func (v *view) save(saving bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.saving = saving
}

func (v *view) isSaving() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.saving
}

func (v *view) count() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.executions
}

// info is what there is to say now.
func (s *Session) info() Info {
	s.view.mu.Lock()
	b, saving := s.view.box, s.view.saving
	i := Info{
		Name: s.name, Status: s.view.status, Process: os.Getpid(), Created: s.view.created, Executions: s.view.executions,
		Waiting: s.Waiting(), Background: s.view.background, Running: slices.Clone(s.view.running), Lost: s.view.lost,
	}
	if !s.view.since.IsZero() {
		i.Created = s.view.since
	}
	s.view.mu.Unlock()
	if i.Status == "" {
		i.Status = Unused
	}
	i.Used = i.Created
	if used := s.used.Load(); s.view.count() > 0 {
		i.Used = s.clock.at(time.Duration(used))
	}
	i.Created, i.Used = i.Created.UTC(), i.Used.UTC()
	if b != nil {
		if b.dead() {
			if !saving {
				i.Status, i.Lost = Gone, "its sandbox has ended"
			}
		} else if u, ok := b.usage(); ok {
			i.CPU = &u.CPU
			if u.MemoryBytes > 0 {
				i.Memory = &u.MemoryBytes
			}
		}
	}
	if s.book != nil {
		i.Log = s.book.dir
	}
	return i
}

// List says what this process has: its own session, and the named ones that
// are awake here, or were when they were lost. Those that sleep are in the
// records, see [Shelf].
func (s *Set) List() []Info {
	s.mu.Lock()
	var all []*Session
	for _, one := range s.sessions {
		all = append(all, one)
	}
	own := s.sessions[s.own]
	s.mu.Unlock()
	list := make([]Info, len(all))
	var asking sync.WaitGroup
	for i, one := range all {
		asking.Go(func() { list[i] = one.info() })
	}
	asking.Wait()
	list = slices.DeleteFunc(list, func(i Info) bool {
		return i.Name != s.own && (i.Status == Unused || s.keeper != nil && i.Status == Asleep)
	})
	for n := range list {
		if i := &list[n]; i.Name == s.own {
			i.Unnamed = true
			if i.Status == Asleep && s.keeper != nil {
				i.Disk = s.keeper.store.Size(s.keeper.process)
			}
		}
	}
	if own == nil {
		list = append(list, Info{Name: s.own, Unnamed: true, Status: Unused, Process: os.Getpid(), Created: s.made, Used: s.made})
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// known is the session of that name, or of the process for an empty one, if it
// has been used in this process.
func (s *Set) known(name string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		name = s.own
	}
	return s.sessions[name]
}

// Sleep lays a session that is awake here to sleep.
func (s *Set) Sleep(ctx context.Context, name string) error {
	one := s.known(name)
	if one == nil || !one.awake.Load() {
		return fmt.Errorf("%w awake in process %d", ErrUnknown, os.Getpid())
	}
	if err := one.Sleep(ctx); err != nil {
		return fmt.Errorf("it stays awake: %w", err)
	}
	return nil
}

// Wake wakes a session that sleeps. It takes its place in the queue.
func (s *Set) Wake(ctx context.Context, name string) error {
	one := s.known(name)
	if one == nil && name != "" {
		if s.keeper == nil {
			return ErrUnknown
		}
		if r, err := s.keeper.read(name); err != nil || r == nil {
			return errors.Join(ErrUnknown, err)
		}
		var err error
		if one, err = s.Get(name); err != nil {
			return err
		}
	}
	if one == nil {
		return ErrUnknown
	}
	return one.Wake(ctx)
}

// Wake wakes the session when its turn comes, if it sleeps.
func (s *Session) Wake(ctx context.Context) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if s.box != nil {
		return nil
	}
	if s.life.Err() != nil {
		return ErrClosed
	}
	if s.nap == nil {
		return errNoSleep
	}
	lost, err := s.nap.claim()
	if err != nil {
		return err
	}
	if !s.nap.asleep {
		s.nap.leave(lost)
		if lost != "" {
			return fmt.Errorf("nothing is left to wake: %s", lost)
		}
		return errors.New("it has no state to wake yet")
	}
	if s.room != nil {
		if err := s.room(ctx, s); err != nil {
			s.nap.leave("")
			return err
		}
	}
	b, err := s.nap.wake(ctx, s)
	s.awake.Store(err == nil)
	if err != nil {
		if s.nap.asleep {
			s.nap.leave("")
			return fmt.Errorf("it sleeps on, and cannot be woken now: %w", err)
		}
		s.lose("the sleeping session could not be woken: " + err.Error())
		s.nap.leave(s.lost)
		return fmt.Errorf("its state is lost: it could not be woken: %w", err)
	}
	s.box = b
	s.opened(b)
	s.use() // else it would fall asleep at once
	b.idle(s.config.Background)
	return nil
}

// Reset forgets a session's state, here or on disk. Its log stays.
func (s *Set) Reset(ctx context.Context, name string) error {
	one := s.known(name)
	if one == nil {
		return ErrUnknown
	}
	return one.Reset(ctx)
}

// Remove forgets a session's state and its log.
func (s *Set) Remove(ctx context.Context, name string) error {
	if err := s.Reset(ctx, name); err != nil {
		return err
	}
	return s.known(name).book.remove()
}

// A Shelf is what lies on disk of all processes' named sessions.
type Shelf struct {
	keeper *keeper
	logs   string
}

// NewShelf returns the one of that configuration, of which it needs Snapshots,
// Records, Logs and Logger.
func NewShelf(config Config) *Shelf {
	return &Shelf{&keeper{config: config.withDefaults(), store: config.Snapshots, records: config.Records, clock: newClock(config.Now)}, config.Logs}
}

// List lists the sessions that there are records of. One that is Awake is held
// by a process that lives. Records that cannot be read are the error, beside
// the others.
func (f *Shelf) List() ([]Info, error) {
	names, err := f.keeper.records.List()
	if err != nil {
		return nil, err
	}
	var list []Info
	var errs []error
	for _, file := range names {
		name, ok := strings.CutSuffix(file, recordSuffix)
		if !ok {
			continue
		}
		name = state.TextOf(name, "")
		r, err := f.keeper.read(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if r == nil {
			continue
		}
		i := Info{
			Name: name, Status: r.Status, Created: r.Created, Used: r.Used, Executions: r.Executions,
			Disk: r.Bytes, Background: r.Background, Running: r.Running, Lost: r.Lost,
		}
		if r.Status == Awake {
			i.Process = r.Process
			if unlock, err := f.keeper.try(name); err == nil {
				// It may have been laid down this moment.
				if again, err := f.keeper.read(name); err == nil && again != nil {
					i.Status, i.Disk, i.Lost = again.Status, again.Bytes, again.Lost
				}
				unlock()
				if i.Process = 0; i.Status == Awake {
					i.Status, i.Lost = Gone, "the Sallyport that ran this session ended without saving it"
				}
			}
		}
		if f.logs != "" {
			if dir := bookDir(f.logs, name); exists(dir) {
				i.Log = dir
			}
		}
		list = append(list, i)
	}
	return append(list, f.reset(list)...), errors.Join(errs...)
}

// reset lists the sessions of which nothing but the log is left.
func (f *Shelf) reset(known []Info) []Info {
	if f.logs == "" {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(f.logs, namedBooks))
	var list []Info
	for _, e := range entries {
		i := Info{Name: state.TextOf(e.Name(), ""), Status: Unused, Log: filepath.Join(f.logs, namedBooks, e.Name())}
		if validName.MatchString(i.Name) && !slices.ContainsFunc(known, func(k Info) bool { return k.Name == i.Name }) {
			list = append(list, i)
		}
	}
	return list
}

// Reset forgets the state of a session that is not awake, and its log where
// all is set. It is ErrElsewhere where a process has the session.
func (f *Shelf) Reset(name string, all bool) error {
	record, err := f.keeper.read(name)
	if record == nil && err == nil && (f.logs == "" || !exists(bookDir(f.logs, name))) {
		return ErrUnknown
	}
	unlock, err := f.keeper.try(name)
	if err != nil {
		return err
	}
	n := f.keeper.nap(name, false)
	n.unlock = unlock
	defer n.release()
	if all && f.logs != "" {
		err = state.At(f.logs).Sub(namedBooks).RemoveAll(state.FileName(name, ""))
	}
	return errors.Join(err, n.forget())
}

// Total is what the snapshots of all sessions take on disk, in bytes.
func (f *Shelf) Total() (int64, error) {
	if f.keeper.store == nil {
		return 0, nil
	}
	list, err := f.keeper.store.List()
	var total int64
	for _, e := range list {
		if !strings.HasPrefix(e.Name, basePrefix) {
			total += e.Size
		}
	}
	return total, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

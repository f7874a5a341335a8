package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/snapshot"
	"sallyport/internal/state"
	"sallyport/internal/wire"
)

const (
	// sessionPrefix begins the names of snapshots of named sessions, and
	// processPrefix those of sessions that end with their process.
	sessionPrefix = "session-"
	processPrefix = "process-"
	recordSuffix  = ".json"
	// spareDisk stays free when a session is laid to sleep.
	spareDisk = 16 << 20
	maxRecord = 64 << 10
)

// ErrElsewhere: the session is awake in another process of this user.
var ErrElsewhere = errors.New("the session is in use by another Sallyport")

// errTorn: there is a record, and it is none.
var errTorn = errors.New("what was written down of the session is damaged, as by a power cut")

// Status says where a session's state is.
type Status string

// The states of a session.
const (
	Awake  Status = "awake"  // in a sandbox
	Asleep Status = "asleep" // on disk
	Gone   Status = "gone"   // lost; the next execution says why
)

// Record is what is written of a named session, for other processes and for
// people.
type Record struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
	Status  Status    `json:"status"`
	// Lost says why the state is gone.
	Lost string `json:"lost,omitempty"`
	// Process is the one in which it is awake, or was.
	Process int `json:"process,omitempty"`
	// Bytes is the size of its snapshot.
	Bytes int64 `json:"bytes,omitempty"`
	// Background is what went on in it when it fell asleep.
	Background wire.Background `json:"background,omitzero"`
	// Running names some of it.
	Running []string `json:"running,omitempty"`
	// Executions is how many it has had in all.
	Executions uint64 `json:"executions,omitempty"`
}

// keeper lays sessions to sleep and wakes them.
type keeper struct {
	config   Config
	restorer sandbox.Restorer
	store    *snapshot.Store
	records  state.Dir
	process  string // names what this process has for itself
	clock    *clock

	mu   sync.Mutex
	mark func() // set: says that this process lives
}

// newKeeper returns nil where sessions live in memory alone.
func newKeeper(config Config, clock *clock) *keeper {
	restorer, ok := sandbox.As[sandbox.Restorer](config.Backend)
	if !ok || config.Snapshots == nil {
		return nil
	}
	return &keeper{
		config: config, restorer: restorer, store: config.Snapshots, records: config.Records, clock: clock,
		process: fmt.Sprintf("%s%d-%s", processPrefix, os.Getpid(), strings.TrimPrefix(newID(), "sp-")[:8]),
	}
}

// sleepNote is what the next host must know of a guest.
type sleepNote struct {
	Ready        wire.Ready        `json:"ready"`
	Executions   uint64            `json:"executions"`
	Known        map[string]string `json:"known"`
	Background   wire.Background   `json:"background"`
	Running      []string          `json:"running,omitempty"`
	Stray        string            `json:"stray"`
	StrayOmitted int64             `json:"strayOmitted"`
}

// A nap is one session's place on disk, and what it holds there.
type nap struct {
	keeper *keeper
	name   string // of the session
	own    bool   // it ends with this process: nobody else may know of it
	unlock func() // nil: this process does not have it
	record Record
	asleep bool
}

func (k *keeper) nap(name string, own bool) *nap {
	if k == nil {
		return nil
	}
	return &nap{keeper: k, name: name, own: own}
}

// snapshotName is where the session sleeps.
func (n *nap) snapshotName() string {
	if n.own {
		return n.keeper.process
	}
	return sessionPrefix + n.name
}

// claim makes the session this process's, and says why state that it had is
// gone, if it is. It is ErrElsewhere while another one has it awake.
func (n *nap) claim() (lost string, err error) {
	if n == nil || n.own || n.unlock != nil {
		return "", nil
	}
	unlock, err := n.keeper.try(n.name)
	if errors.Is(err, ErrElsewhere) {
		return "", err
	}
	if err != nil {
		return "", n.unkept(err)
	}
	record, err := n.keeper.read(n.name)
	if errors.Is(err, errTorn) {
		record, err = &Record{Name: n.name, Created: n.keeper.clock.now(), Status: Gone, Lost: err.Error()}, nil
	}
	if err != nil {
		unlock()
		return "", n.unkept(err)
	}
	if record == nil {
		record = &Record{Name: n.name, Created: n.keeper.clock.now()}
	}
	n.asleep = record.Status == Asleep
	switch record.Status {
	case Awake:
		lost = "the Sallyport that ran this session ended without saving it"
	case Gone:
		lost = record.Lost
	}
	n.unlock, n.record = unlock, *record
	if n.asleep {
		return lost, nil
	}
	// Nothing is lost with this one in a power cut: what it says is that there
	// may be variables, which are gone then. Half of it is as good as all.
	if err := n.note(Awake, "", n.keeper.records.WriteUnsynced); err != nil {
		n.release()
		return "", n.unkept(err)
	}
	return lost, nil
}

// unkept says of an error of the disk what it means for a session.
func (n *nap) unkept(err error) error {
	return fmt.Errorf("the session %q cannot be kept: %w. Make %s writable and see that there is room on its disk, or set another place (stateDir); a session without a name needs none", n.name, err, n.keeper.records.Path(""))
}

// write updates the record.
func (n *nap) write(status Status, lost string) error {
	return n.note(status, lost, n.keeper.records.Write)
}

func (n *nap) note(status Status, lost string, write func(name string, data []byte) error) error {
	if n.own {
		return nil
	}
	n.record.Status, n.record.Lost, n.record.Used = status, lost, n.keeper.clock.now()
	n.record.Process = os.Getpid()
	if status != Asleep {
		n.record.Bytes, n.record.Background, n.record.Running = 0, wire.Background{}, nil
	}
	data, err := json.MarshalIndent(n.record, "", "  ")
	if err != nil {
		return err
	}
	return write(state.FileName(n.name, recordSuffix), append(data, '\n'))
}

// release lets other processes have the session.
func (n *nap) release() {
	if n != nil && n.unlock != nil {
		n.unlock()
		n.unlock = nil
	}
}

// leave releases a session that has no sandbox any more, and writes down what
// became of its state.
func (n *nap) leave(lost string) {
	if n == nil || n.unlock == nil {
		return
	}
	var err error
	switch {
	case n.asleep:
		err = n.write(Asleep, "")
	case lost != "":
		err = n.write(Gone, lost)
	default: // it had none
		err = n.keeper.records.Remove(state.FileName(n.name, recordSuffix))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.keeper.config.Logger.Warn("a session's record could not be written", "session", n.name, "error", err)
	}
	n.release()
}

// sleep writes the sandbox's state to disk and ends it. On error it goes on,
// unless it is dead.
func (n *nap) sleep(ctx context.Context, b *box) error {
	k := n.keeper
	snapshotter, ok := sandbox.As[sandbox.Snapshotter](b.run)
	if !ok {
		return errors.New("this engine cannot save a running sandbox")
	}
	if n.own {
		if err := k.live(); err != nil {
			return err
		}
	}
	spec := k.config.Spec
	spec.ID = b.id
	binding, err := k.restorer.Binding(ctx, &spec)
	if err != nil {
		return err
	}
	ready, err := b.conn.Ready(ctx)
	if err != nil {
		return err
	}
	// One at a time, of all processes: each finds what the others have written.
	unlock, err := k.store.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// A snapshot that does not fit would end the sandbox. While it is written it
	// is not packed yet.
	u, ok := b.usage()
	known := ok && u.MemoryBytes >= 0
	need := k.config.Spec.Limits.WithDefaults().MemoryBytes + spareDisk
	if known {
		need = u.MemoryBytes + spareDisk
	}
	if err := k.makeRoom(need); err != nil {
		return err
	}
	if free := k.store.Free(); known && free < need {
		return fmt.Errorf("there is no room on the disk: %d MB are free, up to %d MB are needed", free>>20, need>>20)
	}
	note := &sleepNote{Ready: ready, Executions: b.conn.Executions(), Known: b.known, Background: b.background, Running: b.running}
	form := snapshot.Packed
	if k.config.Unpacked {
		form = snapshot.Plain
	}
	err = k.store.Write(n.snapshotName(), binding, form, note, func(dir string) error {
		if err := snapshotter.Snapshot(ctx, dir, false); err != nil {
			return err
		}
		// Its last output is in the pipes.
		select {
		case <-b.conn.Dead():
		case <-ctx.Done():
		}
		note.Stray, note.StrayOmitted = b.stray.take()
		return nil
	})
	if err != nil {
		return err
	}
	n.asleep = true
	n.record.Bytes, n.record.Background, n.record.Running = k.store.Size(n.snapshotName()), b.background, b.running
	return nil
}

// passing says of the error of a wake that it is the machine's of this moment,
// and not the snapshot's.
func passing(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EAGAIN, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// wake continues what sleeps. When it cannot, the error says why, and the state
// is lost unless the session still is asleep: the caller gave up, or the machine
// could not just now.
func (n *nap) wake(ctx context.Context, s *Session) (_ *box, err error) {
	k := n.keeper
	name := n.snapshotName()
	defer func() {
		if err != nil && (ctx.Err() != nil || passing(err)) {
			return // it sleeps on
		}
		n.asleep = false
		unwritten := n.write(Awake, "")
		// From now on it would be an old state.
		if e := k.store.Remove(name); e != nil && !errors.Is(e, snapshot.ErrNone) {
			k.config.Logger.Warn("an old snapshot could not be removed", "session", n.name, "error", e)
		}
		if unwritten != nil {
			unwritten = n.write(Awake, "") // there is more room now
		}
		if unwritten != nil {
			k.config.Logger.Warn("a session's record could not be written", "session", n.name, "error", unwritten)
		}
	}()
	return n.restore(ctx, s.config, s.log, s.life.Done())
}

// restore makes a sandbox of what sleeps, which goes on sleeping.
func (n *nap) restore(ctx context.Context, config Config, log *slog.Logger, life <-chan struct{}) (*box, error) {
	k := n.keeper
	ctx, cancel := context.WithTimeout(ctx, config.StartTimeout)
	defer cancel()
	spec := k.config.Spec
	spec.ID = newID()
	binding, err := k.restorer.Binding(ctx, &spec)
	if err != nil {
		return nil, err
	}
	found, err := k.store.Open(n.snapshotName(), binding)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var note sleepNote
	if err := json.Unmarshal(found.Note, &note); err != nil {
		return nil, err
	}
	run, err := k.restorer.Restore(ctx, &spec, image(found))
	if err != nil {
		return nil, err
	}
	b, err := open(config, spec.ID, run, log, life, guest.Options{Restored: &note.Ready, Executions: note.Executions})
	if err != nil {
		return nil, err
	}
	if note.Known != nil {
		b.known = note.Known
	}
	b.background, b.running = note.Background, note.Running
	b.stray.write([]byte(note.Stray))
	return b, nil
}

// forget removes all that is on disk of a session that this process has.
func (n *nap) forget() error {
	if n == nil {
		return nil
	}
	n.asleep = false
	err := n.keeper.store.Remove(n.snapshotName())
	if errors.Is(err, snapshot.ErrNone) {
		err = nil
	}
	if n.own {
		return err
	}
	if e := n.keeper.records.Remove(state.FileName(n.name, recordSuffix)); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	n.release()
	return err
}

// live marks this process as one that lives, before something on disk depends
// on it.
func (k *keeper) live() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mark != nil {
		return nil
	}
	mark, err := k.try(k.process)
	k.mark = mark
	return err
}

// close takes the mark back.
func (k *keeper) close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mark != nil {
		k.mark()
		k.mark = nil
	}
}

// try takes a session's lock; ErrElsewhere when another process has it.
func (k *keeper) try(name string) (unlock func(), err error) {
	unlock, ok, err := k.records.TryLock(state.FileName(name, ""))
	if err != nil {
		return nil, err
	}
	if !ok {
		if r, err := k.read(name); err == nil && r != nil && r.Process != 0 {
			return nil, fmt.Errorf("%w (process %d), where it is awake; use another name, or wait until it sleeps there ('sallyport sessions hibernate %s')", ErrElsewhere, r.Process, name)
		}
		return nil, ErrElsewhere
	}
	return unlock, nil
}

// read returns the record of a session; nil when there is none.
func (k *keeper) read(name string) (*Record, error) {
	data, err := k.records.Read(state.FileName(name, recordSuffix), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errTorn, k.records.Path(state.FileName(name, recordSuffix)), err)
	}
	return &r, nil
}

// expire removes a sleeping session's state. Its next execution is told why.
func (k *keeper) expire(name, reason string) error {
	unlock, err := k.try(name)
	if errors.Is(err, ErrElsewhere) {
		return nil // it wakes, or is being saved
	}
	if err != nil {
		return err
	}
	defer unlock()
	record, err := k.read(name)
	if err != nil || record == nil || record.Status != Asleep {
		return err
	}
	n := &nap{keeper: k, name: name, unlock: unlock, record: *record}
	used := record.Used
	if err := n.write(Gone, reason); err != nil {
		return err
	}
	n.record.Used = used
	return k.store.Remove(sessionPrefix + name)
}

package hibernate

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/snapshot"
)

// ErrKept is part of an error of restore after which the state is still good.
var ErrKept = errors.New("the state is kept")

// A Session names what a session has on disk.
type Session struct {
	Owner, Name string
	File        string // of its record and its snapshot; empty: it ends with its process and has no record
	Label       string // for people
	// Engine and Template are what its state is made with.
	Engine, Template string
	Environment      string // its name
	Mounts           []sandbox.Mount
}

// A Checkpoint is what one session keeps on disk: its lock, its record and its
// snapshot. The holder of the session's turn uses it. Methods that return
// nothing but an error may be called on nil, which is a session in memory only.
type Checkpoint struct {
	Store     *Store
	Record    Record
	Suspended bool // the state is in the snapshot

	session Session
	place   string // the name of its snapshot
	unlock  func() // nil: this process does not hold it
}

// Checkpoint returns what a session keeps on disk. It reads nothing. On nil it
// returns nil.
func (s *Store) Checkpoint(session Session) *Checkpoint {
	if s == nil {
		return nil
	}
	c := &Checkpoint{Store: s, session: session, place: SessionPrefix + session.File}
	if session.File == "" {
		c.place = s.newPlace()
	}
	return c
}

// Held reports whether this process holds the session's lock.
func (c *Checkpoint) Held() bool { return c != nil && c.unlock != nil }

// MadeBy records the engine and the template that the state is made with, before it is
// saved.
func (c *Checkpoint) MadeBy(engine, template string) {
	c.session.Engine, c.session.Template = engine, template
}

// Engine returns the name of the engine that the state is made with.
func (c *Checkpoint) Engine() string { return c.session.Engine }

// Size returns the size of the snapshot.
func (c *Checkpoint) Size() int64 { return c.Store.Snapshots.Size(c.place) }

// Claim takes the session for this process, and returns why its earlier state
// is gone, if it is. The error is ErrElsewhere while it runs in another process.
func (c *Checkpoint) Claim() (lost string, err error) {
	if c == nil || c.session.File == "" || c.unlock != nil {
		return "", nil
	}
	unlock, err := c.Store.Lock(c.session.File)
	// Whoever lists the sessions of a dead process has the lock for a moment.
	for pause := time.Millisecond; errors.Is(err, ErrElsewhere) && pause < 100*time.Millisecond; pause *= 2 {
		time.Sleep(pause)
		unlock, err = c.Store.Lock(c.session.File)
	}
	if errors.Is(err, ErrElsewhere) {
		return "", err
	}
	if err != nil {
		return "", c.unkept(err)
	}
	record, err := c.Store.Read(c.session.File)
	if errors.Is(err, ErrDamaged) {
		record, err = &Record{Created: c.Store.Clock.Now(), Status: Gone, Lost: err.Error()}, nil
	}
	if err != nil {
		unlock()
		return "", c.unkept(err)
	}
	if record == nil {
		record = &Record{Created: c.Store.Clock.Now()}
	}
	c.Suspended = record.Status == Suspended
	switch record.Status {
	case Running:
		lost = "the Sallyport that ran this session ended without saving it"
	case Gone:
		lost = record.Lost
	}
	c.unlock, c.Record = unlock, *record
	if c.Suspended {
		return lost, nil
	}
	// This record may be lost in a power cut: it only says that there may be
	// variables, and those are gone then too.
	if err := c.note(Running, "", c.Store.WriteUnsynced); err != nil {
		c.Release()
		return "", c.unkept(err)
	}
	return lost, nil
}

// unkept explains what a disk error means for a session.
func (c *Checkpoint) unkept(err error) error {
	return fmt.Errorf("the session %q cannot be kept: %w. Make %s writable and free some space on its disk, or use another directory (stateDir); a session without a name needs none", c.session.Label, err, c.Store.Records.Path(""))
}

func (c *Checkpoint) note(status Status, lost string, write func(file string, r *Record) error) error {
	if c.session.File == "" {
		return nil
	}
	c.Record.Update(status, lost, c.Store.Clock.Now())
	c.Record.Name, c.Record.Owner = c.session.Name, c.session.Owner
	c.Record.Engine, c.Record.Template, c.Record.Environment, c.Record.Mounts = c.session.Engine, c.session.Template, c.session.Environment, c.session.Mounts
	return write(c.session.File, &c.Record)
}

// KeepPackages records the archives of packages of a running session.
func (c *Checkpoint) KeepPackages(archives []string) {
	if !c.Held() {
		return
	}
	c.Record.Packages = archives
	if err := c.note(Running, "", c.Store.WriteUnsynced); err != nil {
		c.Store.Logger.Warn("a session's record could not be written", "session", c.session.Label, "error", err)
	}
}

// Release lets other processes have the session.
func (c *Checkpoint) Release() {
	if c.Held() {
		c.unlock()
		c.unlock = nil
	}
}

// Leave releases a session that no longer has a sandbox, and records what
// became of its state.
func (c *Checkpoint) Leave(lost string) {
	if !c.Held() {
		return
	}
	var err error
	switch {
	case c.Suspended:
		err = c.note(Suspended, "", c.Store.Write)
	case lost != "":
		err = c.note(Gone, lost, c.Store.Write)
	default: // it had none
		err = c.Store.RemoveRecord(c.session.File)
	}
	if err != nil {
		c.Store.Logger.Warn("a session's record could not be written", "session", c.session.Label, "error", err)
	}
	c.Release()
}

// A Save is what Checkpoint.Save needs.
type Save struct {
	Binding string
	Note    any  // encoded after Take has returned
	Packed  bool // compress the snapshot
	Limits  sandbox.Limits
	// Measure returns how much memory the sandbox uses; false: that is not known,
	// and its limit counts.
	Measure func() (int64, bool)
	// Take writes the sandbox's state into a directory and ends the sandbox.
	Take func(dir string) error
}

// Save writes the state of a sandbox to disk, where there is room for it. The
// session is suspended then.
func (c *Checkpoint) Save(ctx context.Context, s Save) error {
	if c.session.File == "" {
		if err := c.Store.MarkAlive(); err != nil {
			return err
		}
	}
	snapshots := c.Store.Snapshots
	// One process at a time, so that each sees what the others have written.
	unlock, err := snapshots.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// A snapshot that does not fit would end the sandbox. It is packed only
	// after it has been written.
	used, known := s.Measure()
	need := s.Limits.MemoryBytes + SpareDisk
	if known {
		need = used + SpareDisk
	}
	if err := c.Store.MakeRoom(need); err != nil {
		return err
	}
	if free := snapshots.Free(); known && free < need {
		return fmt.Errorf("there is no room on the disk: %d MB are free, up to %d MB are needed", free>>20, need>>20)
	}
	form := snapshot.Plain
	if s.Packed {
		form = snapshot.Packed
	}
	if err := snapshots.Write(c.place, s.Binding, form, s.Note, s.Take); err != nil {
		return err
	}
	c.Suspended, c.Record.Limits, c.Record.Bytes = true, s.Limits, snapshots.Size(c.place)
	return nil
}

// Open opens the snapshot. The session stays suspended.
func (c *Checkpoint) Open(binding string) (*snapshot.Snapshot, error) {
	return c.Store.Snapshots.Open(c.place, binding)
}

// passing reports whether resume failed because of a temporary condition of the
// machine, such as a folder that is gone, not a defect of the snapshot; or of one that
// restore knows to leave the state good.
func passing(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EAGAIN, context.DeadlineExceeded,
		sandbox.ErrFolder, ErrKept,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Resume continues a suspended session with restore. If that fails, the state is
// lost, unless the session is still suspended because the caller gave up or the
// machine temporarily lacked a resource.
func (c *Checkpoint) Resume(ctx context.Context, restore func() error) error {
	err := restore()
	if err != nil && (ctx.Err() != nil || passing(err)) {
		return err // it stays suspended
	}
	c.Suspended = false
	unwritten := c.note(Running, "", c.Store.Write)
	// From now on the snapshot is out of date.
	if e := c.Store.Snapshots.Remove(c.place); e != nil && !errors.Is(e, snapshot.ErrNone) {
		c.Store.Logger.Warn("an old snapshot could not be removed", "session", c.session.Label, "error", e)
	}
	if unwritten != nil {
		unwritten = c.note(Running, "", c.Store.Write) // there is more room now
	}
	if unwritten != nil {
		c.Store.Logger.Warn("a session's record could not be written", "session", c.session.Label, "error", unwritten)
	}
	return err
}

// Forget removes everything that a session of this process has on disk.
func (c *Checkpoint) Forget() error {
	if c == nil {
		return nil
	}
	c.Suspended = false
	if c.session.File == "" {
		return c.Store.removeSnapshot(c.place)
	}
	err := c.Store.Remove(c.session.File)
	c.Release()
	return err
}

// Remove removes the snapshot and the record of a session whose lock this
// process holds.
func (s *Store) Remove(file string) error {
	return errors.Join(s.removeSnapshot(SessionPrefix+file), s.RemoveRecord(file))
}

func (s *Store) removeSnapshot(place string) error {
	if err := s.Snapshots.Remove(place); !errors.Is(err, snapshot.ErrNone) {
		return err
	}
	return nil
}

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/clock"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/wire"
)

// newHibernator returns nil where sessions exist in memory only.
func newHibernator(options Options, clock *clock.Clock) *hibernate.Store {
	if options.Snapshots == nil {
		return nil
	}
	return offlineStore(options, clock)
}

// offlineStore returns the store of the sessions on disk.
func offlineStore(options Options, clock *clock.Clock) *hibernate.Store {
	return hibernate.New(hibernate.Config{
		Snapshots: options.Snapshots, Records: options.Records, MaxDisk: options.MaxDisk, Keep: options.Keep,
		Clock: clock, Logger: options.Logger,
		File: func(owner, name string) string { return Key{Owner: owner, Name: name}.file() },
	})
}

// fits returns an error if a session of that template cannot continue with the
// suspended state. It does not change that state.
func fits(r *hibernate.Record, t *Template) error {
	switch {
	case r.Status != hibernate.Suspended || r.Template == "":
		return nil
	case r.Engine != t.Engine.Name():
		return fmt.Errorf("%w: it was suspended by engine %s, and this one is %s. Choose engine %s, use another name, or forget its state ('sallyport sessions reset %s')",
			ErrTemplate, r.Engine, t.Engine.Name(), r.Engine, r.Name)
	}
	if r.Template != t.binding() {
		what := "its environment was another when it was suspended. Restore that"
		switch {
		case !slices.Equal(r.Mounts, t.Mounts):
			what = "it sees other folders"
		case r.Environment != t.Environment:
			what = fmt.Sprintf("it has environment %s, not %s. Leave the environment out", environment(r.Environment), environment(t.Environment))
		case r.Environment != "":
			what = fmt.Sprintf("its environment %s was built anew after it was suspended. Build the earlier one again", r.Environment)
		}
		return fmt.Errorf("%w: %s, use another name, or forget its state ('sallyport sessions reset %s')", ErrTemplate, what, r.Name)
	}
	if larger, _ := differ(r.Limits.WithDefaults(), t.Limits.WithDefaults()); len(larger) > 0 {
		return fmt.Errorf("%w: it was suspended with more than it may have now: %s. Raise the limits, use another name, or forget its state ('sallyport sessions reset %s')",
			ErrTemplate, strings.Join(larger, ", "), r.Name)
	}
	return nil
}

// fitsExactly reports whether the template is the one that the suspended state
// was made with, down to its limits.
func fitsExactly(r *hibernate.Record, t *Template) bool {
	return r.Status == hibernate.Suspended && fits(r, t) == nil && r.Limits.WithDefaults() == t.Limits.WithDefaults()
}

// limitsNotice says that a session was resumed under smaller limits than it
// would get now; empty: it was not. A sandbox cannot change its limits.
func limitsNotice(was, now sandbox.Limits) string {
	_, smaller := differ(was, now)
	if len(smaller) == 0 {
		return ""
	}
	return "the session was resumed with the limits that it was suspended with: " + strings.Join(smaller, ", ") + ". It gets the new ones when it is reset"
}

// differ lists the limits that were larger before, and those that were smaller.
func differ(was, now sandbox.Limits) (larger, smaller []string) {
	cores := func(n float64) float64 {
		if n <= 0 {
			return math.Inf(1)
		}
		return n
	}
	const mb = 1 << 20
	for _, l := range []struct {
		name     string
		was, now float64
		unit     string
	}{
		{"memory", float64(was.MemoryBytes) / mb, float64(now.MemoryBytes) / mb, " MB"},
		{"processes", float64(was.Processes), float64(now.Processes), ""},
		{"cpus", cores(was.CPUs), cores(now.CPUs), ""},
		{"workspace", float64(was.WorkspaceBytes) / mb, float64(now.WorkspaceBytes) / mb, " MB"},
		{"tmp", float64(was.TmpBytes) / mb, float64(now.TmpBytes) / mb, " MB"},
		{"packages", float64(was.PackagesBytes) / mb, float64(now.PackagesBytes) / mb, " MB"},
		{"openFiles", float64(was.OpenFiles), float64(now.OpenFiles), ""},
		{"output", float64(was.OutputBytes) / mb, float64(now.OutputBytes) / mb, " MB"},
	} {
		text := func(n float64) string {
			if math.IsInf(n, 1) {
				return "unlimited"
			}
			return strconv.FormatFloat(n, 'g', 6, 64) + l.unit
		}
		line := fmt.Sprintf("limits.%s was %s and is %s", l.name, text(l.was), text(l.now))
		switch {
		case l.was > l.now:
			larger = append(larger, line)
		case l.was < l.now:
			smaller = append(smaller, line)
		}
	}
	return larger, smaller
}

// checkpointNote is what a host needs to know to resume a guest.
type checkpointNote struct {
	Ready       wire.Ready        `json:"ready"`
	Executions  uint64            `json:"executions"`
	Known       map[string]string `json:"known"`
	Background  wire.Background   `json:"background"`
	Running     []string          `json:"running,omitempty"`
	IdleOutput  string            `json:"idleOutput"`
	IdleOmitted int64             `json:"idleOmitted"`
}

// newCheckpoint returns nil where the session exists in memory only.
func newCheckpoint(k *hibernate.Store, key Key, shared *shared) *hibernate.Checkpoint {
	if k == nil || shared.restorer() == nil {
		return nil
	}
	named := hibernate.Session{Owner: key.Owner, Name: key.Name, Label: key.String(), Engine: shared.config.Engine.Name(), Template: shared.config.binding(), Environment: shared.config.Environment, Mounts: shared.config.Mounts}
	if !key.own() {
		named.File = key.file()
	}
	return k.Checkpoint(named)
}

// binding returns the engine's binding of a sandbox, and the session that it
// belongs to.
func (s *Session) binding(ctx context.Context, restorer sandbox.Restorer, spec *sandbox.Spec) (string, error) {
	if restorer == nil {
		return "", s.shared.unkept()
	}
	text, err := restorer.Binding(ctx, spec)
	if err == nil && s.key.Owner != "" {
		text += "\nowner: " + strconv.Quote(s.key.Owner)
	}
	return text, err
}

// fits calls fits for a session that this process has just claimed. It lets
// other processes have one that does not fit.
func (s *Session) fits() error {
	if !s.checkpoint.Held() {
		return nil
	}
	err := fits(&s.checkpoint.Record, &s.config.Template)
	if err != nil {
		s.checkpoint.Release()
	}
	return err
}

// save writes the sandbox's state to disk and ends it. On error the sandbox
// continues, unless it is dead.
func (s *Session) save(ctx context.Context) error {
	b := s.instance
	snapshotter, ok := sandbox.As[sandbox.Snapshotter](b.run)
	if !ok {
		return errors.New("this engine cannot save a running sandbox")
	}
	spec := s.config.spec()
	spec.ID, spec.Limits = b.id, b.limits
	binding, err := s.binding(ctx, s.shared.restorer(), &spec)
	if err != nil {
		return err
	}
	if engine := s.config.Engine.Name(); engine != b.run.Handle().Backend { // read after the binding, which is of that engine or of a former one
		return fmt.Errorf("engine %s started the sandbox and another, %s, would restore it", b.run.Handle().Backend, engine)
	}
	s.checkpoint.MadeBy(b.run.Handle().Backend, s.config.binding())
	ready, err := b.conn.Ready(ctx)
	if err != nil {
		return err
	}
	note := &checkpointNote{Ready: ready, Executions: b.conn.Executions(), Known: b.known, Background: b.background, Running: b.running}
	err = s.checkpoint.Save(ctx, hibernate.Save{
		Binding: binding, Note: note, Packed: !s.config.Unpacked, Limits: b.limits,
		Measure: func() (int64, bool) {
			u, ok := b.usage()
			return u.MemoryBytes, ok && u.MemoryBytes >= 0
		},
		Take: func(dir string) error {
			err := snapshotter.Snapshot(ctx, dir, false)
			if errors.Is(err, sandbox.ErrHeld) {
				err = s.letGo(ctx, dir, snapshotter)
				note.Executions = b.conn.Executions()
			}
			if err != nil {
				return err
			}
			// Its last output is in the pipes.
			select {
			case <-b.conn.Dead():
			case <-ctx.Done():
			}
			note.IdleOutput, note.IdleOmitted = b.idleOutput.Take()
			return nil
		},
	})
	if err == nil {
		s.checkpoint.Record.Background, s.checkpoint.Record.Running = b.background, b.running
	}
	return err
}

// letGo has the guest close what keeps its sandbox from being saved, and saves it
// into the directory of the failed attempt. The code's next use of such a file fails,
// which is better than losing all of its state.
func (s *Session) letGo(ctx context.Context, dir string, snapshotter sandbox.Snapshotter) error {
	b := s.instance
	defer func(life <-chan struct{}) { b.life = life }(b.life)
	b.life = nil // sessions are also saved when they are closed
	err := b.ask(ctx, s.config.Grace, taskTime(0), wire.TaskLetGo, func(call wire.Call) (any, error) {
		return nil, unexpected(call)
	})
	if err != nil {
		return fmt.Errorf("%w (%w)", sandbox.ErrHeld, err)
	}
	left, err := os.ReadDir(dir)
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if err != nil {
		return err
	}
	s.log.Info("files of a mounted folder that are gone were closed, to suspend the session")
	return snapshotter.Snapshot(ctx, dir, false)
}

// resume continues a suspended session, see [hibernate.Checkpoint.Resume].
func (s *Session) resume(ctx context.Context) (b *instance, err error) {
	err = s.checkpoint.Resume(ctx, func() (err error) {
		b, err = s.restore(ctx, s.checkpoint.Record.Limits)
		return err
	})
	return b, err
}

// restore starts a sandbox from the snapshot, with the limits that it was taken
// with. The session stays suspended.
func (s *Session) restore(ctx context.Context, limits sandbox.Limits) (*instance, error) {
	config := s.config
	ctx, cancel := context.WithTimeout(ctx, config.StartTimeout)
	defer cancel()
	config.Limits = limits.WithDefaults()
	restorer, now := s.shared.restoring()
	if was := s.checkpoint.Engine(); was != now {
		err := fmt.Errorf("it was suspended by engine %s, and this one is %s", was, now)
		if !s.key.own() { // whose state would otherwise be in the way for good
			err = fmt.Errorf("%w: %w", hibernate.ErrKept, err)
		}
		return nil, err
	}
	spec := config.spec()
	binding, err := s.binding(ctx, restorer, &spec)
	if err != nil {
		return nil, err
	}
	found, err := s.checkpoint.Open(binding)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var note checkpointNote
	if err := json.Unmarshal(found.Note, &note); err != nil {
		return nil, err
	}
	run, err := restorer.Restore(ctx, &spec, image(found))
	if err != nil && len(spec.Mounts) > 0 {
		return nil, fmt.Errorf("%w: %w. It sees folders of this computer, and files in them that code had open may be gone or changed: put them back, or forget the session's state ('sallyport sessions reset %s')",
			hibernate.ErrKept, err, s.key.Name)
	}
	if err != nil {
		return nil, err
	}
	b, err := open(config, spec.ID, run, s.log, s.life.Done(), guest.Options{Restored: &note.Ready, Executions: note.Executions})
	if err != nil {
		return nil, err
	}
	if note.Known != nil {
		b.known = note.Known
	}
	b.discovered = "unknown" // a list that this process did not send
	b.background, b.running = note.Background, note.Running
	b.idleOutput.Write([]byte(note.IdleOutput))
	return b, nil
}

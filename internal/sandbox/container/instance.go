package container

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// instance identifies one program on its containers: a file that names the
// engine, and a lock that the program holds for as long as it lives. A file whose
// lock is free belongs to a dead program: its containers are removed, and then
// the file. Containers of instances without a file here are never touched: they
// may belong to another machine that uses the same engine.
type instance struct {
	id      string
	dir     store.Dir
	unlock  func()
	started time.Time
}

// instanceSuffix ends the names of instance files.
const instanceSuffix = ".json"

// lateGrace is how long after a program's last start an instance without
// containers is kept: a client that outlived its program may still make one.
const lateGrace = 2 * time.Minute

// note is the content of an instance's file.
type note struct {
	Target string    `json:"target"` // the engine, as facts.Target tells them apart
	Used   time.Time `json:"used"`   // about when it last started something
}

// openInstance makes an instance for this program.
func openInstance(dir store.Dir, target string) (*instance, error) {
	id := strings.ToLower(rand.Text()[:10])
	unlock, ok, err := dir.TryLock(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("the lock of a new instance is taken")
	}
	in := &instance{id: id, dir: dir, unlock: unlock}
	if err := in.touch(target); err != nil {
		unlock()
		return nil, err
	}
	return in, nil
}

// touch records that something is started now.
func (in *instance) touch(target string) error {
	if now := time.Now(); now.Sub(in.started) > lateGrace/4 {
		b, err := json.Marshal(note{Target: target, Used: now.UTC()})
		if err != nil {
			return err
		}
		if err := in.dir.Write(in.id+instanceSuffix, b); err != nil {
			return err
		}
		in.started = now
	}
	return nil
}

// close removes the instance, unless containers are left for a sweeper.
func (in *instance) close(clean bool) error {
	var err error
	if clean {
		if err = in.dir.Remove(in.id + instanceSuffix); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	in.unlock()
	if clean {
		err = errors.Join(err, in.dir.DropLock(in.id))
	}
	return err
}

// sweep removes what dead programs left. Several programs may sweep at once. It
// asks the engine only if there is a dead program.
func (b *Engine) sweep(ctx context.Context, target string) error {
	dir := b.opts.State
	names, err := dir.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		id, ok := strings.CutSuffix(name, instanceSuffix)
		if !ok {
			continue
		}
		unlock, free, err := dir.TryLock(id)
		if err != nil || !free {
			continue // alive
		}
		done, err := b.sweepOne(ctx, id, target)
		unlock()
		if done && err == nil {
			err = dir.DropLock(id)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepOne removes an instance's containers, and its file once no client of it can
// make another. The caller holds its lock.
func (b *Engine) sweepOne(ctx context.Context, id, target string) (done bool, err error) {
	dir := b.opts.State
	data, err := dir.Read(id+instanceSuffix, 4096)
	if err != nil {
		return false, nil // another was first
	}
	var n note
	if !validInstance(id) || json.Unmarshal(data, &n) != nil || n.Target != target {
		return false, nil // not ours, or of another engine
	}
	b.dropFolders(id + "-")
	left, err := b.containersOf(ctx, id)
	if err != nil {
		return false, fmt.Errorf("looking for what an earlier program left: %w", err)
	}
	if len(left) > 0 {
		if err := b.remove(ctx, left...); err != nil {
			return false, err
		}
		b.log.Info("removed the containers of a dead program", "instance", id, "containers", len(left))
	}
	if time.Since(n.Used) < lateGrace {
		return false, nil
	}
	return true, dir.Remove(id + instanceSuffix)
}

func validInstance(id string) bool {
	return id != "" && len(id) <= 32 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// containersOf lists the containers of an instance, running or not.
func (b *Engine) containersOf(ctx context.Context, id string) ([]string, error) {
	out, err := b.cli.output(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+labelInstance+"="+id)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(out)), nil
}

// remove removes containers, running or not. It ignores those that are gone.
func (b *Engine) remove(ctx context.Context, names ...string) error {
	args := []string{"rm", "--force", "--volumes"}
	for _, name := range names {
		for try := 0; ; try++ {
			_, err := b.cli.output(ctx, append(args, name)...)
			if err == nil || asFailure(err) == errNoContainer {
				break
			}
			if try == 3 || ctx.Err() != nil {
				return err
			}
			// "removal … already in progress", or the engine is busy with it.
			select {
			case <-time.After(time.Duration(100<<try) * time.Millisecond):
			case <-ctx.Done():
				return err
			}
		}
	}
	return nil
}

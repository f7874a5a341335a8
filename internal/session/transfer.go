package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sallyport/sallyport/internal/wire"
)

// Put waits for its turn and puts files into the workspace, part by part: next returns
// nil at the end. A suspended session is resumed. A file that does not come whole changes
// nothing.
func (s *Session) Put(ctx context.Context, next func() (*wire.TaskFile, error)) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if err := s.wake(ctx); err != nil {
		return err
	}
	if s.instance.dead() {
		s.drop(s.instance.deathReason())
		return errors.New("its sandbox has ended: " + s.lost)
	}
	if err := s.instance.unpause(ctx); err != nil {
		return err
	}
	defer s.idleAgain("files were put into it")
	defer s.use()
	return s.instance.ask(ctx, s.config.Grace, taskTime(s.instance.limits.WorkspaceBytes), wire.TaskPutIn, giving(func() (*wire.TaskFile, error) {
		f, err := next()
		if err == nil && f != nil && (!fs.ValidPath(f.Path) || f.Path == ".") {
			return nil, fmt.Errorf("%s is not a place below /workspace", wire.OneLine(f.Path))
		}
		return f, err
	}))
}

// Take waits for its turn and gives the files at paths in the workspace, and those below
// directories, part by part. A suspended session stays suspended. Paths, except those it is
// called with, come from the guest, but are below them.
func (s *Session) Take(ctx context.Context, paths []string, give func(wire.TaskFile) error) error {
	b, done, err := s.look(ctx, "its files were copied")
	if err != nil {
		return err
	}
	defer done()
	t := &taker{paths: paths, give: give, room: b.limits.WorkspaceBytes}
	return b.ask(ctx, s.config.Grace, taskTime(b.limits.WorkspaceBytes), wire.TaskTakeNamed, t.take)
}

// taker asks a guest for files and passes them on.
type taker struct {
	paths []string
	give  func(wire.TaskFile) error
	room  int64

	current string // of paths
	open    string // the file of which more is to come; empty: none
}

func (t *taker) take(call wire.Call) (any, error) {
	switch call.Method {
	case wire.MethodTaskNext:
		if t.open != "" {
			return nil, errors.New("the sandbox did not send all of a file")
		}
		if len(t.paths) == 0 {
			return nil, nil
		}
		t.current, t.paths = t.paths[0], t.paths[1:]
		return wire.TaskFile{Path: t.current}, nil
	case wire.MethodTaskFile:
		f, err := wire.DecodeTaskFile(call.Params)
		if err != nil {
			return nil, err
		}
		below := t.current == "." || f.Path == t.current || strings.HasPrefix(f.Path, t.current+"/")
		switch {
		case t.current == "" || !below || f.LeftOut == "" && !fs.ValidPath(f.Path) || t.open != "" && f.Path != t.open:
			return nil, fmt.Errorf("the sandbox sent a file other than %s", wire.OneLine(t.current))
		case f.More && (f.Directory || f.LeftOut != ""):
			return nil, errors.New("the sandbox sent parts of what is not a file")
		}
		if t.room -= int64(len(f.Data)); t.room < 0 {
			return nil, errors.New("the files are larger than the workspace may be (limits.workspace)")
		}
		t.open = ""
		if f.More {
			t.open = f.Path
		}
		return nil, t.give(f)
	}
	return nil, unexpected(call)
}

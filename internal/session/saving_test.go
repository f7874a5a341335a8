package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// saving is a scripted engine whose guests remember words, and whose runs can
// be saved: what a guest remembers is the snapshot.
type saving struct {
	scripted
	binding            string
	saveErr, dieOnSave error
	saveErrOnce        bool
	saveTakes          time.Duration
	unable             error    // of a restore
	sends              []string // parts of files, in place of what is remembered

	mu       sync.Mutex
	restored int
	saves    int
	memories map[*scriptedRun]map[string]string
	starting map[string]map[string]string // by ID, what a run that is restored remembers
}

func newSaving() *saving {
	e := &saving{binding: "engine: saving", memories: map[*scriptedRun]map[string]string{}, starting: map[string]map[string]string{}}
	e.guest = e.remember
	return e
}

// remember is a guest. "set K V" and "get K" are its words beside the others';
// "reseeded" says whether it was told to be.
func (e *saving) remember(g *guestEnd) {
	e.mu.Lock()
	memory := e.starting[g.run.spec.ID]
	fresh := memory == nil
	if fresh {
		memory = map[string]string{}
	}
	e.memories[g.run] = memory
	e.mu.Unlock()
	if fresh {
		g.ready()
	}
	for {
		f, ok := g.next()
		if !ok {
			return
		}
		if f.Type != "exec" {
			continue
		}
		if f.Reseed != "" {
			memory["reseed"] = f.Reseed
		}
		verb, rest, _ := strings.Cut(f.Code, " ")
		switch f.Task {
		case wire.TaskTakeOut:
			e.takeOut(g, f, memory)
			continue
		case wire.TaskLetGo:
			memory["let go"] = "yes"
			g.done(f, "ok", 0)
			continue
		case wire.TaskPutIn:
			if !putIn(g, f, memory) {
				return
			}
			continue
		}
		switch verb {
		case "set":
			k, v, _ := strings.Cut(rest, " ")
			memory[k] = v
			g.done(f, "ok", 0)
		case "get":
			g.output(wire.KindStdout, memory[rest])
			g.done(f, "ok", 0)
		case `__import__("json")`:
			memory["json"] = "imported"
			g.done(f, "ok", 0)
		case `__import__("missing")`:
			g.output(wire.KindStderr, "ModuleNotFoundError: No module named 'missing'\n")
			g.done(f, "error", 1)
		case "leave": // output after the end
			g.done(f, "ok", 0)
			time.Sleep(time.Millisecond) // the host has seen the end when time goes on
			g.output(wire.KindStdout, rest)
		default:
			if !words(g, f) {
				return
			}
		}
	}
}

// takeOut sends what the guest remembers as files, or what the test wants sent.
func (e *saving) takeOut(g *guestEnd, f frame, memory map[string]string) {
	parts := e.sends
	if parts == nil {
		for k, v := range memory {
			data, _ := json.Marshal(wire.TaskFile{Path: k, Mode: 0o644, Data: []byte(v)})
			parts = append(parts, string(data))
		}
	}
	for i, p := range parts {
		g.control(`{"type":"call","id":%d,"run":%d,"method":"task_file","params":%s}`, i+1, f.ID, p)
		for {
			reply, ok := g.next()
			if !ok {
				return
			}
			if reply.Type == "reply" {
				if !reply.OK {
					g.done(f, "error", 1)
					return
				}
				break
			}
		}
	}
	g.done(f, "ok", 0)
}

// putIn remembers the files that it is given.
func putIn(g *guestEnd, f frame, memory map[string]string) bool {
	for id := 1; ; id++ {
		g.control(`{"type":"call","id":%d,"run":%d,"method":"task_next","params":{}}`, id, f.ID)
		reply, ok := g.next()
		if !ok {
			return false
		}
		if !reply.OK {
			g.done(f, "error", 1)
			return true
		}
		var part *wire.TaskFile
		if err := json.Unmarshal(reply.Result, &part); err != nil {
			panic(err)
		}
		if part == nil {
			g.done(f, "ok", 0)
			return true
		}
		memory[part.Path] += string(part.Data)
	}
}

func (e *saving) Binding(context.Context, *sandbox.Spec) (string, error) { return e.binding, nil }

func (e *saving) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	run, err := e.scripted.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return savedRun{run.(*scriptedRun), e}, nil
}

func (e *saving) Restore(ctx context.Context, spec *sandbox.Spec, image sandbox.Image) (sandbox.Run, error) {
	if e.unable != nil {
		return nil, e.unable
	}
	if err := image.Check(ctx); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.NewSectionReader(image.Files[0], 0, 1<<20))
	if err != nil {
		return nil, err
	}
	memory := map[string]string{}
	if err := json.Unmarshal(data, &memory); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.starting[spec.ID] = memory
	e.restored++
	e.mu.Unlock()
	return e.Start(ctx, spec)
}

func (e *saving) counts() (restored, saves int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.restored, e.saves
}

type savedRun struct {
	*scriptedRun
	engine *saving
}

func (r savedRun) Snapshot(_ context.Context, dir string, keep bool) error {
	e := r.engine
	if e.saveErr != nil {
		defer func() {
			if e.saveErrOnce {
				e.saveErr = nil
			}
		}()
		return e.saveErr
	}
	if e.dieOnSave != nil {
		r.kill()
		<-r.ended
		return e.dieOnSave
	}
	time.Sleep(e.saveTakes)
	e.mu.Lock()
	data, err := json.Marshal(e.memories[r.scriptedRun])
	e.saves++
	e.mu.Unlock()
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "memory"), data, 0o600)); err == nil && !keep {
		r.kill()
		<-r.ended
	}
	return err
}

//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// SessionConfig is what a session begins with. The session takes the streams and
// closes them at its end; they do not block.
type SessionConfig struct {
	ID     string
	Limits sandbox.Limits
	Env    []string // NAME=VALUE each, in addition to the program's
	Files  []sandbox.File

	Stdin, Stdout, Stderr *os.File

	// Archive has packages that the session finds at PackagesDir; nil: it has none.
	// Packages identifies it. The archive is not used once the session has started.
	Packages string
	Archive  io.ReaderAt
}

// A Session is one interpreter. Its methods are safe for concurrent use.
type Session struct {
	id      string
	image   *Image
	budget  *budget
	memory  *memory
	system  *system
	streams []*os.File
	wake    wakeup
	ctx     context.Context // for calls into the module
	cpus    float64

	// Of the session's goroutine.
	module    api.Module
	run       api.Function
	interrupt api.Function
	mutable   []api.MutableGlobal
	yielded   time.Time
	calls     uint64    // of host functions
	unheard   bool      // an interrupt was passed on, and no wait has ended because of it
	slept     time.Time // since when the time of the CPU limit counts
	sleptCPU  time.Duration
	next      time.Time // when run is to be called without a frame; zero: never
	started   bool      // run has been called
	resumed   bool      // it was called in an earlier life: the session begins parked

	events atomic.Uint32 // what the goroutine has to look at: the bits below
	clock  cpuClock

	mu      sync.Mutex
	changed *sync.Cond
	state   state
	killed  sandbox.Exit // why, if killedEvent is set
	work    []func()     // for the session's goroutine
	paused  bool         // a Pause has succeeded, and no Resume came since
	pausing int          // calls of Pause under way
	done    chan struct{}
	exit    sandbox.Exit
}

// Bits of Session.events.
const (
	killedEvent uint32 = 1 << iota
	pausedEvent
	interruptedEvent
	workEvent
)

// state is what a session's goroutine does.
type state int

const (
	running state = iota // it runs Python, or host calls
	parked               // there is no WebAssembly stack: it waits for a frame or a time
	held                 // it is paused
	over                 // it has ended
)

// A killedError ends the calls into the module of a session that is to end.
type killedError struct{ exit sandbox.Exit }

func (e *killedError) Error() string { return "the session was ended: " + string(e.exit.Reason) }

type sessionKey struct{}

// sessionOf returns the session that runs in ctx.
func sessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

// newSession returns a session that does not run yet.
func newSession(img *Image, b *budget, mem *memory) *Session {
	s := &Session{image: img, budget: b, memory: mem, system: &system{}, done: make(chan struct{})}
	s.system.files.budget = b
	s.wake.event = -1
	s.changed = sync.NewCond(&s.mu)
	s.ctx = context.WithValue(context.Background(), sessionKey{}, s)
	return s
}

// Start starts a session. It returns at once: the program is ready when it says so on
// its standard output.
func (img *Image) Start(ctx context.Context, c SessionConfig) (*Session, error) {
	return img.begin(c, func(s *Session) error {
		if err := s.startSystem(ctx, c); err != nil {
			return err
		}
		return s.adopt(img.header.Globals)
	})
}

// begin makes a session, prepares it on its goroutine and lets it run.
func (img *Image) begin(c SessionConfig, prepare func(*Session) error) (_ *Session, err error) {
	limits := c.Limits.WithDefaults()
	b := &budget{limit: limits.MemoryBytes}
	mem, err := newMemory(b, limits.MemoryBytes, img.file, imageStart, img.header.Size)
	if err != nil {
		closeFiles(c.Stdin, c.Stdout, c.Stderr)
		return nil, err
	}
	s := newSession(img, b, mem)
	s.id, s.cpus = c.ID, limits.CPUs
	s.streams = []*os.File{c.Stdin, c.Stdout, c.Stderr}
	if err := s.wake.open(c.Stdin); err != nil {
		s.release()
		return nil, err
	}
	prepared := make(chan error)
	go func() {
		err := prepare(s)
		prepared <- err
		if err == nil {
			s.main()
		}
		s.release()
	}()
	if err := <-prepared; err != nil {
		return nil, err
	}
	return s, nil
}

// instantiate makes the session's module.
func (s *Session) instantiate() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("prepare the interpreter's memory: %v", r)
		}
	}()
	s.module, err = s.image.machine.instance(s.ctx, s.memory)
	if err != nil {
		return err
	}
	s.interrupt = s.module.ExportedFunction("interrupt")
	s.mutable = mutableGlobals(s.module)
	if len(s.mutable) <= stackPointer {
		return errors.New("the interpreter has no stack pointer")
	}
	return nil
}

// adopt makes a module whose memory is the image's, and whose globals are given.
func (s *Session) adopt(globals []uint64) error {
	if err := s.instantiate(); err != nil {
		return err
	}
	if len(globals) != len(s.mutable) {
		return fmt.Errorf("%w: it has %d globals in place of %d", ErrImage, len(globals), len(s.mutable))
	}
	return s.enlarge(s.image.header.Size, globals)
}

// enlarge grows the memory to size and sets the globals.
func (s *Session) enlarge(size int64, globals []uint64) error {
	mem := s.module.Memory()
	more := size/wasmPage - int64(mem.Size())/wasmPage
	if more > 0 {
		if _, ok := mem.Grow(uint32(more)); !ok {
			return fmt.Errorf("the memory limit is less than the %d bytes that the session needs", size)
		}
	}
	for i, g := range s.mutable {
		g.Set(globals[i])
	}
	return nil
}

// mutableGlobals returns the globals that are a module's state besides its memory.
func mutableGlobals(m api.Module) (all []api.MutableGlobal) {
	for i := range maxGlobals {
		g, ok := m.ExportedGlobal(fmt.Sprintf("g%d", i)).(api.MutableGlobal)
		if !ok {
			break
		}
		all = append(all, g)
	}
	return all
}

// stackPointer is the global that points to the end of the stack in linear memory.
const stackPointer = 0

// globals returns their values.
func (s *Session) globals() []uint64 {
	values := make([]uint64, len(s.mutable))
	for i, g := range s.mutable {
		values[i] = g.Get()
	}
	return values
}

// linear returns the whole linear memory.
func (s *Session) linear() []byte {
	data, _ := s.module.Memory().Read(0, s.module.Memory().Size())
	return data
}

// main runs the program until it has ended.
func (s *Session) main() {
	for first := true; ; first = false {
		if first && s.resumed {
			// The program waits, as it did when the snapshot was taken.
		} else if exit, ended := s.turn(); ended {
			s.end(exit)
			return
		}
		if exit, ended := s.park(); ended {
			s.end(exit)
			return
		}
	}
}

// turn calls the program once. It says how the session has ended, if it has.
func (s *Session) turn() (exit sandbox.Exit, ended bool) {
	if s.run == nil {
		s.run = s.module.ExportedFunction("run")
	}
	s.started = true
	s.unheard = false // the interpreter looks before it waits
	s.budget.refused.Store(false)
	results, err := s.call(s.run)
	if err != nil {
		return s.ending(err), true
	}
	ms := int64(results[0])
	switch {
	case ms < 0:
		return sandbox.Exit{Code: 1, Reason: sandbox.Exited, Detail: "the program has failed"}, true
	case ms > math.MaxInt64/int64(2*time.Millisecond):
		s.next = time.Time{}
	default:
		s.next = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	return exit, false
}

// call calls a function of the module on one thread, whose time is the session's.
func (s *Session) call(f api.Function) (results []uint64, err error) {
	runtime.LockOSThread()
	s.clock.begin()
	defer func() {
		s.clock.end()
		runtime.UnlockOSThread()
	}()
	s.yielded = time.Now()
	return f.Call(s.ctx)
}

// end records how the session has ended.
func (s *Session) end(exit sandbox.Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit, s.state = exit, over
	s.changed.Broadcast()
}

// release frees what the session held, and lets those go who wait for its end.
func (s *Session) release() {
	if s.module != nil {
		_ = s.module.Close(s.ctx) // frees the memory too
	}
	s.memory.Free()
	s.system.close()
	s.mu.Lock()
	s.state = over
	s.changed.Broadcast()
	s.mu.Unlock()
	s.wake.close()
	closeFiles(s.streams...)
	close(s.done)
}

// Done returns a channel that is closed when the session has ended and holds nothing
// any more.
func (s *Session) Done() <-chan struct{} { return s.done }

// Exit returns how the session has ended. It waits for the end.
func (s *Session) Exit() sandbox.Exit {
	<-s.done
	return s.exit
}

// ID returns the session's name.
func (s *Session) ID() string { return s.id }

// Usage returns what the session uses. The memory is the pages that it does not share
// with its image, and its files. The host's own memory for it is not counted.
func (s *Session) Usage() sandbox.Usage {
	pages, files, most := s.memory.private(s.image.machine.pages), s.system.files.now.Load(), s.system.files.most.Load()
	// Linear memory never shrinks, nor do its private pages.
	return sandbox.Usage{CPU: s.clock.total(), MemoryBytes: pages + files, PeakBytes: pages + most}
}

var errEnded = fmt.Errorf("the session has ended: %w", sandbox.ErrGone)

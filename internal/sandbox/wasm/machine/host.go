//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/wasi"
)

const (
	// yieldAfter is how long a session computes before it lets others run.
	yieldAfter = 2 * time.Millisecond
	// callsPerLook is how many host functions a session calls before it looks at the clock.
	callsPerLook = 8
	// throttleWindow is the time for which a CPU limit of less than one core may be
	// exceeded or saved.
	throttleWindow = 100 * time.Millisecond
)

// instantiateHost makes what the interpreter imports.
func (m *Machine) instantiateHost(ctx context.Context) error {
	fuel := api.GoModuleFunc(func(ctx context.Context, _ api.Module, _ []uint64) { sessionOf(ctx).fuel() })
	_, err := m.runtime.NewHostModuleBuilder("sallyport").
		NewFunctionBuilder().WithGoModuleFunction(fuel, nil, nil).Export("fuel").
		Instantiate(ctx)
	if err != nil {
		return err
	}
	return instantiateSystem(ctx, m.runtime)
}

// instance makes a module of a session. It runs nothing in it.
func (m *Machine) instance(ctx context.Context, mem *memory) (api.Module, error) {
	return m.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, mem), m.code,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

// fuel is called by every loop of the interpreter, each time that it has turned often.
func (s *Session) fuel() {
	if s.events.Load()&^workEvent != 0 {
		s.attend()
	}
	s.yield()
}

// Attend implements wasi.Attender: what fuel does for loops it does for host functions.
func (s *Session) Attend() {
	if s.events.Load()&^workEvent != 0 {
		s.attend()
	}
	if s.calls++; s.calls%callsPerLook == 0 {
		s.yield()
	}
}

// yield lets others run if the session has computed for a while.
func (s *Session) yield() {
	if time.Since(s.yielded) < yieldAfter {
		return
	}
	// Others wait: collections, the host's own goroutines, other sessions.
	runtime.Gosched()
	s.throttle()
	s.yielded = time.Now()
}

// attend does what others want of a session that runs. If it is to end, attend panics with
// a killedError.
func (s *Session) attend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		events := s.events.Load()
		switch {
		case events&killedEvent != 0:
			panic(&killedError{s.killed})
		case events&pausedEvent != 0:
			before := s.state
			s.become(held)
			s.changed.Wait()
			s.become(before)
		case events&interruptedEvent != 0:
			s.clear(interruptedEvent)
			s.mu.Unlock()
			err := s.signal()
			s.mu.Lock()
			if err != nil {
				panic(err)
			}
			s.unheard = true
		default:
			return
		}
	}
}

// redZone is how much of the stack below its pointer a function that calls no other may
// use. The compiler of the interpreter does not count the calls of fuel.
const redZone = 128

// signal tells the interpreter that it is interrupted. The call returns at once:
// Python code notices when it looks.
func (s *Session) signal() error {
	sp := s.mutable[stackPointer]
	before := sp.Get()
	sp.Set(uint64(uint32(before) - redZone))
	_, err := s.interrupt.Call(s.ctx)
	sp.Set(before)
	return err
}

// become changes what the goroutine does. The caller holds s.mu.
func (s *Session) become(next state) {
	s.state = next
	s.changed.Broadcast()
}

// clear removes an event. The caller holds s.mu.
func (s *Session) clear(event uint32) { s.events.And(^event) }

// throttle sleeps while the session has used more than its share of time.
func (s *Session) throttle() {
	if s.cpus <= 0 || s.cpus >= 1 {
		return
	}
	used := s.clock.total()
	now := time.Now()
	if s.slept.IsZero() {
		s.slept, s.sleptCPU = now, used
		return
	}
	// What the time that has passed allows, at most that of a window.
	debt := time.Duration(float64(used-s.sleptCPU)/s.cpus) - now.Sub(s.slept)
	if debt < -throttleWindow {
		s.slept, s.sleptCPU = now.Add(-throttleWindow), used
		return
	}
	if debt > throttleWindow/4 {
		s.sleep(debt)
	}
}

// ending says how a session has ended whose program did not return.
func (s *Session) ending(err error) sandbox.Exit {
	var killed *killedError
	if errors.As(err, &killed) {
		return killed.exit
	}
	if code, ok := exitCode(err); ok {
		return sandbox.Exit{Code: code, Reason: sandbox.Exited}
	}
	exit := sandbox.Exit{Code: 134, Reason: sandbox.Exited, Detail: "the interpreter has crashed: " + cause(err)}
	if s.budget.refused.Load() {
		exit.Reason, exit.Detail = sandbox.OutOfMemory, "the interpreter has ended because it got no more memory"
	}
	return exit
}

// exitCode returns the exit status of a program that has asked to end.
func exitCode(err error) (int, bool) {
	var exit wasi.ExitError
	if errors.As(err, &exit) {
		return int(exit.Code & 0xff), true
	}
	return 0, false
}

// cause returns the first line of an error of wazero. The rest is a stack of functions.
func cause(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Sprintf("%.300s", strings.TrimSuffix(first, " (recovered by wazero)"))
}

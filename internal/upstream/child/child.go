package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/tail"
)

const (
	// keepStderr is how much of a program's standard error is kept.
	keepStderr = 64 << 10
	// lastWords is how long a dead program's output may stay open
	// (a process outside its group may hold it) before it is closed.
	lastWords = 200 * time.Millisecond
	// killWait bounds the wait for a killed program: one in an uninterruptible
	// system call does not die at once.
	killWait = 5 * time.Second
)

// Spec says what to start.
type Spec struct {
	Path string   // from Find
	Args []string // without the program's name
	Env  []string // the whole environment, "NAME=value"
	Dir  string   // working directory; empty: ours
	// Grace is how long each step of Stop waits; 2 s if 0.
	Grace time.Duration
}

// Keeper starts programs and holds what ends them when we die. Its methods are
// safe for concurrent use. The owner closes it after the last program ended.
type Keeper struct {
	log *slog.Logger
	os  keeperOS
}

// NewKeeper starts nothing yet.
func NewKeeper(log *slog.Logger) *Keeper {
	k := &Keeper{log: log}
	k.os.init(log)
	return k
}

// Close ends the lifeline, and with it every program still running.
func (k *Keeper) Close() { k.os.close() }

// Process is a running program. Stdin and Stdout are the caller's to use; both
// are closed when the program is gone, Stdout only then.
type Process struct {
	Stdin  *os.File
	Stdout io.Reader

	cmd    *exec.Cmd
	stdout *output
	os     processOS
	grace  time.Duration
	stderr *tail.Buffer

	exited chan struct{} // the program itself has ended; state is set
	gone   chan struct{} // its group too
	state  *os.ProcessState
	hurry  chan struct{} // closed: no more waiting, kill
	once   sync.Once
	asked  atomic.Bool // a signal asked it to end
}

// Start starts a program.
func (k *Keeper) Start(spec Spec) (*Process, error) {
	p := &Process{
		grace:  spec.Grace,
		stderr: tail.New(keepStderr),
		exited: make(chan struct{}),
		gone:   make(chan struct{}),
		hurry:  make(chan struct{}),
	}
	if p.grace <= 0 {
		p.grace = 2 * time.Second
	}
	var files []*os.File
	release := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		release()
		return nil, err
	}
	widen(outR)

	p.cmd = &exec.Cmd{
		Path: spec.Path, Args: append([]string{spec.Path}, spec.Args...),
		Env: spec.Env, Dir: spec.Dir,
		Stdin: inR, Stdout: outW, Stderr: errW,
		SysProcAttr: ownGroup(),
	}
	if err := p.cmd.Start(); err != nil {
		release()
		return nil, err
	}
	k.os.started(p)
	_, _, _ = inR.Close(), outW.Close(), errW.Close()
	p.stdout = &output{file: outR, ended: make(chan struct{})}
	p.Stdin, p.Stdout = inW, p.stdout

	stderrDone := make(chan struct{})
	go func() {
		defer close(stderrDone)
		_, _ = io.Copy(p.stderr, onlyReader{errR})
	}()
	go k.reap(p, errR, stderrDone)
	return p, nil
}

// onlyReader hides a file's other methods from io.Copy.
type onlyReader struct{ io.Reader }

// reap waits for the program, ends what is left of its group and lets go.
func (k *Keeper) reap(p *Process, stderr *os.File, stderrDone <-chan struct{}) {
	_ = p.cmd.Wait() // the state says it all
	p.state = p.cmd.ProcessState
	select {
	case <-stderrDone:
	case <-time.After(lastWords):
	}
	close(p.exited)
	_ = p.Stdin.Close()
	p.endRest()
	k.os.ended(p)
	_ = stderr.Close()
	<-stderrDone
	// Nothing writes to it any more but what left the group; what was written
	// is still to be read.
	select {
	case <-p.stdout.ended:
	case <-time.After(lastWords):
	}
	_ = p.stdout.file.Close()
	close(p.gone)
}

// output is a program's standard output, and knows when it has been read to
// its end.
type output struct {
	file  *os.File
	once  sync.Once
	ended chan struct{}
}

func (o *output) Read(p []byte) (int, error) {
	n, err := o.file.Read(p)
	if err != nil {
		o.once.Do(func() { close(o.ended) })
	}
	return n, err
}

// PID is the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the program itself has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Gone is closed when nothing of its process group is left either.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// ExitStatus describes how the program ended ("exit status 3", "signal:
// killed"). It is empty while it runs, and when it was Stop that ended it.
func (p *Process) ExitStatus() string {
	select {
	case <-p.exited:
		if p.asked.Load() {
			return ""
		}
		return p.state.String()
	default:
		return ""
	}
}

// Stderr returns the last of what the program wrote to its standard error.
func (p *Process) Stderr() []byte { return p.stderr.Bytes() }

// Stop ends the program and its group, gently at first; when ctx ends it kills
// at once. It returns when all of it is gone, and is idempotent.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.Stdin.Close()
	steps := []func(){
		func() {},
		p.terminate,
		p.kill,
	}
	for i, step := range steps {
		select {
		case <-p.exited:
		default:
			p.asked.Store(i > 0)
		}
		step()
		wait := p.grace
		if i == len(steps)-1 {
			p.once.Do(func() { close(p.hurry) })
			wait = killWait
			ctx = context.WithoutCancel(ctx)
		}
		timer := time.NewTimer(wait)
		select {
		case <-p.gone:
			timer.Stop()
			return nil
		case <-ctx.Done():
			p.once.Do(func() { close(p.hurry) })
		case <-timer.C:
		}
		timer.Stop()
	}
	return fmt.Errorf("process %d does not die", p.PID())
}

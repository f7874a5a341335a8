//go:build unix

package child

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// lifelineScript keeps the list of process groups that it reads and, when its
// input ends, ends them. It is a shell script because a shell is the smallest
// process there is on every Unix: a second copy of our own executable would
// cost megabytes.
const lifelineScript = `
trap '' HUP INT QUIT TERM PIPE
groups=
while read -r op group; do
	case $op in
	+) groups="$groups $group" ;;
	-)
		rest=
		for g in $groups; do
			[ "$g" = "$group" ] || rest="$rest $g"
		done
		groups=$rest
		;;
	esac
done
[ -n "$groups" ] || exit 0
sleep 1
for g in $groups; do kill -s TERM -- "-$g"; done
sleep 2
for g in $groups; do kill -s KILL -- "-$g"; done
exit 0
`

// keeperOS runs the lifeline while there is something to keep.
type keeperOS struct {
	log    *slog.Logger
	mu     sync.Mutex
	groups map[int]bool
	pipe   *os.File // nil: the lifeline does not run
	tries  int      // starts in a row that did not last
	closed bool
	wait   sync.WaitGroup
}

func (k *keeperOS) init(log *slog.Logger) {
	k.log = log
	k.groups = make(map[int]bool)
}

func (k *keeperOS) started(p *Process) {
	p.os.group = p.PID()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups[p.PID()] = true
	if k.pipe == nil {
		k.run()
		return
	}
	tell(k.pipe, "+", p.PID())
}

func (k *keeperOS) ended(p *Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, p.PID())
	if k.pipe != nil {
		tell(k.pipe, "-", p.PID())
	}
}

// tell does not wait for a lifeline that has been stopped, and leaves one
// that has died to be replaced when its end is noticed.
func tell(pipe *os.File, op string, group int) {
	_ = pipe.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(pipe, "%s %d\n", op, group)
}

func (k *keeperOS) close() {
	k.mu.Lock()
	k.closed = true
	if k.pipe != nil {
		_ = k.pipe.Close()
		k.pipe = nil
	}
	k.mu.Unlock()
	k.wait.Wait()
}

// run starts the lifeline with all groups there are. The lock is held.
func (k *keeperOS) run() {
	if k.closed || k.tries > 5 {
		return
	}
	k.tries++
	r, w, err := os.Pipe()
	if err != nil {
		k.log.Warn("no lifeline for servers", "err", err)
		return
	}
	cmd := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"mcp-lifeline", "-c", lifelineScript},
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		Stdin:       r, // its other streams are the null device
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		k.log.Warn("no lifeline for servers: if this process is killed, they only see their input end", "err", err)
		return
	}
	for group := range k.groups {
		tell(w, "+", group)
	}
	k.pipe = w
	started := time.Now()
	k.wait.Go(func() {
		err := cmd.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.pipe != w {
			return // closed by us
		}
		k.log.Warn("the lifeline of the servers died and is started again", "err", err)
		_ = w.Close()
		k.pipe = nil
		if time.Since(started) > time.Minute {
			k.tries = 0
		}
		k.run()
	})
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/control"
	"github.com/sallyport/sallyport/internal/sandbox/instancedir"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/socket"
	"github.com/sallyport/sallyport/internal/store"
)

// A Finding is what a self-check says.
type Finding struct {
	Check string `json:"check"`
	Level string `json:"level"` // one of the levels
	Text  string `json:"text"`
	// Fix says what Repair does; empty: a person must do something, or no one.
	Fix string `json:"fix,omitempty"`

	repair func() error
}

// The levels of findings.
const (
	FindingOK   = "ok"
	FindingNote = "note"
	FindingWarn = "warn"
	FindingFail = "FAIL" // code does not run
)

// Repair does what Fix says. It deletes nothing that cannot be made again.
func (f *Finding) Repair() error { return f.repair() }

// selfChecks are what is looked at, in this order: a look for processes removes the
// sockets of dead ones.
var selfChecks = []struct {
	name string
	look func(*selfCheck)
}{
	{"modes", (*selfCheck).modes},
	{"state", (*selfCheck).stateFiles},
	{"locks", (*selfCheck).locks},
	{"snapshots", (*selfCheck).snapshots},
	{"leftovers", (*selfCheck).leftovers},
	{"sockets", (*selfCheck).sockets},
	{"processes", (*selfCheck).processes},
	{"clock", (*selfCheck).clock},
	{"disk", (*selfCheck).disk},
	{"folders", (*selfCheck).folders},
	{"servers", (*selfCheck).servers},
	{"policy", (*selfCheck).policy},
}

// selfCheck collects findings.
type selfCheck struct {
	app      *App
	ctx      context.Context
	name     string
	report   *store.Report // of the state directory; nil: it cannot be read
	running  []*control.Process
	findings []Finding
}

// SelfCheck looks at the program's own files and processes. It starts nothing.
func (a *App) SelfCheck(ctx context.Context) []Finding {
	c := &selfCheck{app: a, ctx: ctx, findings: []Finding{}}
	for _, check := range selfChecks {
		c.name = check.name
		check.look(c)
	}
	return c.findings
}

func (c *selfCheck) add(level, format string, args ...any) {
	c.findings = append(c.findings, Finding{Check: c.name, Level: level, Text: fmt.Sprintf(format, args...)})
}

// broken adds what Repair can do something about.
func (c *selfCheck) broken(text, fix string, repair func() error) {
	c.findings = append(c.findings, Finding{Check: c.name, Level: FindingWarn, Text: text, Fix: fix, repair: repair})
}

// modes looks at who may write to the program's directories and the user's
// configuration.
func (c *selfCheck) modes() {
	a := c.app
	paths := []string{a.Settings.StateDir}
	if dirs := a.Env.runtimeDirs(); len(dirs) > 0 {
		paths = append(paths, dirs[0])
	}
	if dir := a.Env.absolute("XDG_CACHE_HOME"); dir != "" {
		paths = append(paths, filepath.Join(dir, "sallyport"))
	} else if home := a.Env.Home(); home != "" {
		paths = append(paths, filepath.Join(home, ".cache", "sallyport"))
	}
	if file := a.Settings.File().Path; file != "" {
		dir := filepath.Dir(file)
		rules := filepath.Join(dir, toolpolicy.Directory)
		more, _ := filepath.Glob(filepath.Join(rules, "*"))
		paths = append(append(paths, dir, file, rules), more...)
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 || !othersWrite(info) {
			continue
		}
		mode := info.Mode().Perm() & 0o700
		c.broken(fmt.Sprintf("%s: other users may write to it (mode %04o)", path, info.Mode().Perm()),
			fmt.Sprintf("chmod %04o %s", mode, path), func() error { return os.Chmod(path, mode) })
	}
}

// stateFiles looks at the files of the state directory.
func (c *selfCheck) stateFiles() {
	var err error
	c.report, err = c.app.CheckState()
	if err != nil {
		c.report = nil
		return // the line about the directory says so
	}
	for _, p := range c.report.Problems {
		text := filepath.Join(c.report.Path, p.Path) + ": " + p.Problem
		if p.Fix == "" {
			c.add(FindingWarn, "%s", text)
			continue
		}
		c.broken(text, p.Fix+": "+filepath.Join(c.report.Path, p.Path), func() error { return c.app.State().Repair(p) })
	}
}

// locks looks for locks that killed programs held. They hold up no one.
func (c *selfCheck) locks() {
	if c.report == nil {
		return
	}
	for _, area := range []store.Area{store.Catalog, store.Results, store.Sessions} {
		dir := c.app.state(area)
		for _, name := range dir.LeftLocks() {
			c.broken("a killed program has left the lock of "+dir.Path(name), "remove the lock", func() error {
				unlock, ok, err := dir.TryLock(name)
				if ok {
					unlock()
				}
				return err
			})
		}
	}
}

// snapshots looks for snapshots that no one can use.
func (c *selfCheck) snapshots() {
	all := c.app.snapshots()
	if all == nil || c.report == nil {
		return
	}
	unfinished, unreadable := all.Left()
	for _, name := range unfinished {
		c.broken("a killed program has left an unfinished snapshot: "+name, "remove it", func() error { _, err := all.Unfinished(); return err })
	}
	for _, name := range unreadable {
		if strings.HasPrefix(name, hibernate.PreparedPrefix) {
			c.broken("a prepared snapshot cannot be read: "+name, "remove it; it is made again", func() error { return all.Remove(name) })
		} else {
			c.add(FindingWarn, "the snapshot %s cannot be read: its session begins anew", name)
		}
	}
}

// leftovers looks for what killed programs left outside of the state directory.
func (c *selfCheck) leftovers() {
	for _, runtime := range c.app.Env.runtimeDirs() {
		dirs, _ := filepath.Glob(filepath.Join(runtime, "*"))
		for _, dir := range dirs {
			for _, left := range instancedir.Left(dir) {
				c.add(FindingNote, "a killed program has left %s; the next sandbox removes it", left)
			}
		}
	}
}

// sockets looks at the sockets of running processes.
func (c *selfCheck) sockets() {
	for _, runtime := range c.app.Env.runtimeDirs() {
		for _, sub := range []string{controlDir, hubDir} {
			dir := filepath.Join(runtime, sub)
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				info, err := e.Info()
				if err != nil || e.Type() != fs.ModeSocket {
					continue
				}
				path := filepath.Join(dir, e.Name())
				conn, err := socket.Dial(c.ctx, dir, e.Name())
				if err == nil {
					_ = conn.Close()
				}
				switch mode := info.Mode().Perm(); {
				case errors.Is(err, syscall.ECONNREFUSED):
					c.broken(path+": its process is dead", "remove "+path, func() error {
						if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { // who looks for processes removes it
							return err
						}
						return nil
					})
				case err != nil && !errors.Is(err, fs.ErrNotExist):
					c.add(FindingWarn, "%s: %v", path, err)
				case mode&0o077 != 0:
					c.broken(fmt.Sprintf("%s: its mode is %04o", path, mode), "chmod 0600 "+path, func() error { return os.Chmod(path, 0o600) })
				}
			}
		}
	}
}

// processes asks the running Sallyports.
func (c *selfCheck) processes() {
	s := c.app.running(c.ctx)
	c.running = s.processes
	for _, p := range s.Problems {
		c.add(FindingWarn, "%s", p)
	}
	if n := len(c.running); n > 0 {
		c.add(FindingOK, "running processes that answer: %d", n)
	}
}

// The machine's clock may differ by so much from what it should be.
const clockTolerance = time.Minute

// clock looks whether the machine's clock was set.
func (c *selfCheck) clock() {
	before := len(c.findings)
	now, uptime := time.Now().Round(0), sinceBoot()
	for _, p := range c.running {
		if p.SinceBoot == 0 || uptime == 0 {
			continue
		}
		if by := now.Sub(p.Started) - (uptime - p.SinceBoot); by.Abs() > clockTolerance {
			c.add(FindingWarn, "the clock was set by %s since process %d started at %s: times in records may be wrong", by.Round(time.Second), p.PID, p.Started.Format(time.RFC3339))
		}
	}
	if c.report != nil && c.report.Newest.Sub(now) > clockTolerance {
		c.add(FindingWarn, "the clock is behind: a file of the state directory was written at %s; set the clock", c.report.Newest.Format(time.RFC3339))
	}
	if len(c.findings) == before {
		c.add(FindingOK, "clock")
	}
}

// disk looks whether there is room.
func (c *selfCheck) disk() {
	runtime, _ := c.app.Env.runtimeDir()
	for _, d := range []struct {
		name, path string
		least      int64
	}{{"state", c.app.Settings.StateDir, 512 << 20}, {"runtime", runtime, 16 << 20}} {
		if d.path == "" {
			continue
		}
		switch free := snapshot.At(d.path).Free(); {
		case free < d.least:
			c.add(FindingWarn, "the disk of the %s directory %s has %d MiB left: make room ('sallyport state check' says what takes it)", d.name, d.path, free>>20)
		default:
			c.add(FindingOK, "disk of the %s directory: %d MiB free", d.name, free>>20)
		}
	}
}

// servers names those that fail in running processes.
func (c *selfCheck) servers() {
	for _, p := range c.running {
		for _, f := range p.Failing {
			c.add(FindingWarn, "server %s %s, %d times in a row, in process %d ('sallyport servers test' shows why)", f.Server, f.Class, f.Times, p.PID)
		}
	}
}

// policy looks at the rules for calls.
func (c *selfCheck) policy() {
	c.findings = append(c.findings, CheckRules(c.app.Rules())...)
}

// CheckRules looks at rules for calls.
func CheckRules(rules *toolpolicy.Rules) []Finding {
	c := &selfCheck{name: "policy"}
	v := rules.View()
	for _, p := range v.Problems {
		c.add(FindingFail, "policy: %s", p.String())
	}
	if len(v.Problems) == 0 {
		c.add(FindingOK, "rules for calls: %d, profile %s", len(v.Rules), v.Profile)
	}
	return c.findings
}

// othersWrite reports whether others than the owner may write to a file.
func othersWrite(info fs.FileInfo) bool {
	return filepath.Separator == '/' && info.Mode().Perm()&0o022 != 0
}

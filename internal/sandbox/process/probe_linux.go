//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

// Probe implements sandbox.Backend.
func (b *Backend) Probe(ctx context.Context) (*sandbox.Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Op: "probe", Backend: Name, Err: err}
	}
	own := b.tryNamespaces() == nil
	hard := func(by string) sandbox.LimitReport { return sandbox.LimitReport{Enforcement: sandbox.Hard, By: by} }
	rep := &sandbox.Report{
		Backend: Name, Usable: true, Isolation: sandbox.PlatformIsolation, Duplex: true,
		Limits: map[sandbox.Resource]sandbox.LimitReport{
			sandbox.Memory:    {Enforcement: sandbox.Soft, By: "a watcher that samples /proc"},
			sandbox.Processes: hard("RLIMIT_NPROC of the run's own user"),
			sandbox.CPU:       {By: "nothing: a run has the processors of the place"},
			sandbox.Disk:      hard("tmpfs size"),
			sandbox.OpenFiles: hard("RLIMIT_NOFILE"),
		},
		Findings: []sandbox.Finding{{
			Title:  "code runs on this place's own kernel",
			Detail: "this engine is for places that are a sandbox themselves, such as the container of a worker; whoever breaks out of it is in the place, with what that holds",
		}},
	}
	if !own {
		rep.Limits[sandbox.Disk] = sandbox.LimitReport{By: "nothing: the place's disk is shared (RLIMIT_FSIZE bounds one file)"}
		if !b.root {
			rep.Limits[sandbox.Processes] = sandbox.LimitReport{By: "nothing: the run has no user of its own"}
		}
		if b.root && landlockVersion() == 0 {
			rep.Findings = append(rep.Findings, sandbox.Finding{
				Title:  "code sees the place's files as any user of it does",
				Detail: "there are neither namespaces nor Landlock here; files that only root may read stay closed",
			})
		}
	}
	if p, err := b.interpreter(ctx, ""); err != nil {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Fatal:  true,
			Title:  "no usable Python on this host",
			Detail: err.Error(),
			Remedy: fmt.Sprintf("install Python %s or newer (Debian, Ubuntu: apt-get install python3), or name one with --python", hostroot.MinPython),
		})
	} else {
		rep.Python = fmt.Sprintf("%s (%s)", p.Executable, p.Version)
	}
	if err := b.obstacle(ctx); err != nil {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Fatal:  true,
			Title:  "code could not be kept apart from this program",
			Detail: err.Error(),
			Remedy: "run as root, whose runs get users of their own, or allow user namespaces",
		})
	}
	for _, f := range rep.Findings {
		rep.Usable = rep.Usable && !f.Fatal
	}
	return rep, nil
}

// landlockSignals is the version of Landlock that also keeps signals inside.
const landlockSignals = 6

// obstacle says why runs cannot be told apart from the program here: without a
// user or namespaces of their own, Landlock has to keep them from its memory
// and from killing it.
func (b *Backend) obstacle(context.Context) error {
	if b.root {
		return nil
	}
	err := b.tryNamespaces()
	if err == nil || landlockVersion() >= landlockSignals {
		return nil
	}
	return fmt.Errorf("this user may not have namespaces (%w), and the kernel's Landlock is of version %d where %d is needed", err, landlockVersion(), landlockSignals)
}

// tryNamespaces says why a run cannot have namespaces and a root of its own, by
// making both once.
func (b *Backend) tryNamespaces() error {
	if b.opts.NoNamespaces {
		return errors.New("the configuration does without")
	}
	b.trial.Lock()
	defer b.trial.Unlock()
	if b.tried {
		return b.namespaces
	}
	dir, err := os.MkdirTemp("", "sallyport-try-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r := &run{ended: make(chan struct{}), release: func() error { return nil }}
	err = r.launch(ctx, &launch{executable: b.opts.Executable, userns: !b.root, cfg: stageConfig{
		Try: true, Namespaces: true, UserNamespace: !b.root, OwnNetwork: true, Mountpoint: dir,
		WorkspaceBytes: 1 << 20, TmpBytes: 1 << 20,
		Rootfs: hostroot.Rootfs{Binds: []hostroot.Bind{{Source: "/usr", Target: "/usr"}}},
	}, prepare: func(int, *stageConfig) error { return nil }})
	if err == nil {
		err = r.Destroy(ctx)
	}
	b.tried, b.namespaces = true, err
	return err
}

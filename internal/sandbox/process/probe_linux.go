//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// Probe implements sandbox.Engine.
func (b *Engine) Probe(ctx context.Context) (*sandbox.Report, error) {
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
			Detail: "this engine is for places that are a sandbox themselves, such as a worker's container; code that breaks out has access to everything in that place",
		}},
	}
	if !own {
		rep.NoFolders = noFolders
		rep.Limits[sandbox.Disk] = sandbox.LimitReport{By: "nothing: the place's disk is shared (RLIMIT_FSIZE bounds one file)"}
		if !b.root {
			rep.Limits[sandbox.Processes] = sandbox.LimitReport{By: "nothing: the run has no user of its own"}
		}
		if b.root && landlockVersion() == 0 {
			rep.Findings = append(rep.Findings, sandbox.Finding{
				Title:  "code can read the place's files like any other user",
				Detail: "there are neither namespaces nor Landlock here; only files that others may not read are protected",
			})
		}
	}
	b.host.Describe(ctx, b.opts.Program, rep)
	if err := b.obstacle(ctx); err != nil {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Fatal:  true,
			Title:  "code could not be isolated from this program",
			Detail: err.Error(),
			Remedy: "run as root, whose runs get users of their own, or allow user namespaces",
		})
	}
	for _, f := range rep.Findings {
		rep.Usable = rep.Usable && !f.Fatal
	}
	return rep, nil
}

// landlockSignals is the version of Landlock that also confines signals.
const landlockSignals = 6

// obstacle returns why runs cannot be isolated from this program here: without a
// user or namespaces of their own, only Landlock can keep them from its memory and
// from killing it.
func (b *Engine) obstacle(context.Context) error {
	if b.root {
		return nil
	}
	err := b.tryNamespaces()
	if err == nil || landlockVersion() >= landlockSignals {
		return nil
	}
	return fmt.Errorf("this user may not make namespaces (%w), and the kernel has Landlock version %d, not %d", err, landlockVersion(), landlockSignals)
}

// tryNamespaces returns why a run cannot have namespaces and a root of its own. It
// tries to make both once.
func (b *Engine) tryNamespaces() error {
	if b.opts.NoNamespaces {
		return errors.New("namespaces are disabled by configuration")
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
	r, err := b.launch(ctx, "trial", &launch{cfg: supervisorConfig{
		Try: true, Namespaces: true, UserNamespace: !b.root, OwnNetwork: true, Mountpoint: dir,
		WorkspaceBytes: 1 << 20, TmpBytes: 1 << 20, PackagesBytes: 1 << 20,
		Rootfs: hostroot.Rootfs{Binds: []hostroot.Bind{{Source: "/usr", Target: "/usr"}}},
	}, prepare: func(int, *supervisorConfig) error { return nil }}, nil)
	if err == nil {
		err = r.Destroy(ctx)
	}
	b.tried, b.namespaces = true, err
	return err
}

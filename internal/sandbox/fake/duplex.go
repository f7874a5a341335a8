//go:build unix

package fake

import (
	"os"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Run is a run of the fake engine.
type Run struct {
	*process
	channel sandbox.Channel
}

var (
	_ sandbox.Duplexer       = (*Run)(nil)
	_ sandbox.Interrupter    = (*Run)(nil)
	_ sandbox.Meter          = (*Run)(nil)
	_ sandbox.Pauser         = (*Run)(nil)
	_ sandbox.FileTransferer = (*Run)(nil)
)

// Channel implements sandbox.Duplexer.
func (r *Run) Channel() sandbox.Channel { return r.channel }

// start runs the guest. On error no process is left.
func start(p *process, interpreter string, spec *sandbox.Spec, faults Faults) (*Run, error) {
	sources, files := filepath.Join(p.dir, "guest"), filepath.Join(p.dir, "files")
	if err := os.CopyFS(sources, spec.Program.Files); err != nil {
		return nil, err
	}
	if err := place(files, spec.Files); err != nil {
		return nil, err
	}
	var workspace string
	p.cmd, workspace = p.command(spec, sandbox.Command(spec.Program.Argv, interpreter, sources)...)
	p.cmd.Env = append(p.cmd.Env, sandbox.WorkspaceEnv+"="+workspace, sandbox.FilesEnv+"="+files, sandbox.PackagesEnv+"="+filepath.Join(p.dir, "packages"))
	var ours, theirs []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			closeAll(theirs)
			return nil, err
		}
		if i == 0 {
			ours, theirs = append(ours, w), append(theirs, r)
		} else {
			ours, theirs = append(ours, r), append(theirs, w)
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	err := p.cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, err
	}
	r := &Run{process: p, channel: sandbox.Channel{Stdin: ours[0], Stdout: ours[1], Stderr: ours[2]}}
	if faults.Control != nil {
		r.channel.Stdout = faulty(ours[1], r, faults.Control)
	}
	if faults.Output != nil {
		r.channel.Stderr = faulty(ours[2], r, faults.Output)
	}
	go p.watch()
	return r, nil
}

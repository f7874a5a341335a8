package cli

import (
	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/settings"
)

// composeFlags are the flags of every command that needs the whole system.
type composeFlags struct {
	ServersConfig []string `help:"File of MCP server definitions that take precedence over those in ~/MCPs. Can be repeated." placeholder:"FILE"`
	Engine        *string  `help:"Engine that runs the code: gvisor, wasm, podman or docker, or auto (${engine})." placeholder:"ENGINE" complete:"setting:engine"`
	Python        *string  `help:"Python interpreter for sandboxes: a name in the search path or an absolute path (${python})." placeholder:"PYTHON" complete:"files"`
	DebugGvisor   *string  `help:"Directory for gVisor's own debug logs." hidden:""`

	unsaved func(session string, err error) // session.Options'
	waits   bool                            // app.Options'
}

func (f *composeFlags) flags() []settings.Flag {
	var out []settings.Flag
	if len(f.ServersConfig) > 0 {
		out = append(out, settings.Flag{Name: "--servers-config", Key: "servers.config", Values: f.ServersConfig})
	}
	out = appendFlag(out, "--engine", "engine", f.Engine)
	out = appendFlag(out, "--python", "python", f.Python)
	return appendFlag(out, "--debug-gvisor", "debug.gvisor", f.DebugGvisor)
}

// compose constructs the whole system, which the caller must close. NewSystem
// checks the state directory.
func (u *ui) compose(f *composeFlags) (*app.System, error) {
	if err := u.loadSettings(f.flags()...); err != nil {
		return nil, err
	}
	options := app.Options{Unsaved: f.unsaved, Waits: f.waits}
	if !u.daemon && !u.quiet {
		u.starts = u.newStarts()
		options.Starting = u.starts.begin
	}
	return u.NewSystem(options, f.ServersConfig)
}

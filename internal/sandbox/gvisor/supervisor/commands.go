//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// runtimeMain runs runsc's command line: the commands that the runtime calls
// itself, and those of OCI, so that Podman and Docker can use this executable as a
// runtime. gVisor's own entry point, runsc/cli/maincli, embeds a prebuilt program
// of 47 MB that writes checkpoints to cloud storage.
func runtimeMain() {
	const oci, internal = "", "internal use only"
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Checkpoint): oci,
		new(cmd.Create):     oci,
		new(cmd.Delete):     oci,
		new(cmd.Events):     oci,
		new(cmd.Exec):       oci,
		new(cmd.Features):   oci,
		new(cmd.Kill):       oci,
		new(cmd.List):       oci,
		new(cmd.PS):         oci,
		new(cmd.Pause):      oci,
		new(cmd.Restore):    oci,
		new(cmd.Resume):     oci,
		new(cmd.Run):        oci,
		new(cmd.Spec):       oci,
		new(cmd.Start):      oci,
		new(cmd.State):      oci,
		new(cmd.Update):     oci,
		new(cmd.Wait):       oci,

		new(sentrycmd.Boot):   internal,
		new(cmd.Gofer):        internal,
		new(sentrycmd.Umount): internal,
	}, nil)
}

// useOwnKernel makes the runtime start its kernel from this executable. By default
// gVisor prefers a program in the directory gvisor-bin next to it, which may be an
// installed gVisor: another version, without narrowSyscalls.
func useOwnKernel() error {
	return os.Setenv("GVISOR_SIDECAR_BINARIES_DIR", os.DevNull)
}

//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"
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

		new(kernelCmd):        internal,
		new(fileServerCmd):    internal,
		new(sentrycmd.Umount): internal,
	}, nil)
}

// useOwnKernel makes the runtime start its kernel from this executable. By default
// gVisor prefers a program in the directory gvisor-bin next to it, which may be an
// installed gVisor: another version, without narrowSyscalls.
func useOwnKernel() error {
	return os.Setenv("GVISOR_SIDECAR_BINARIES_DIR", os.DevNull)
}

// kernelCmd starts the sandbox's kernel, which shows the limits of the specification as
// its memory and processors. The runtime reads them from a control group that it
// made itself; here the engine makes it, so it would show those of the host.
type kernelCmd struct{ sentrycmd.Boot }

// Execute implements subcommands.Command. It runs again in a process that the
// kernel starts anew to drop privileges, with the flags that it has set.
func (k *kernelCmd) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	spec, err := specification(f, args[0].(*config.Config))
	if err == nil && spec != nil {
		err = showLimits(f, spec)
		if err == nil && len(folderMounts(spec)) > 0 {
			err = coverCopies(f, spec)
		}
	}
	if err != nil {
		util.Fatalf("reading the specification: %v", err)
	}
	return k.Boot.Execute(ctx, f, args...)
}

// specification reads the specification that a command is given, and leaves it for
// the command. It returns nil without one: the command fails.
func specification(f *flag.FlagSet, conf *config.Config) (*specs.Spec, error) {
	fd, err := strconv.Atoi(f.Lookup("spec-fd").Value.String())
	if err != nil || fd < 0 {
		return nil, err
	}
	if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "specification")
	defer file.Close()
	return specutils.ReadSpecFromFile(f.Lookup("bundle").Value.String(), file, conf)
}

func showLimits(f *flag.FlagSet, spec *specs.Spec) error {
	for name, value := range limitFlags(spec, runtime.NumCPU()) {
		if err := f.Set(name, value); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// limitFlags returns the flags of the kernel for the limits of a specification, on a
// host with so many processors.
func limitFlags(spec *specs.Spec, processors int) map[string]string {
	flags := map[string]string{}
	if spec.Linux == nil || spec.Linux.Resources == nil {
		return flags
	}
	if m := spec.Linux.Resources.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		flags["total-memory"] = strconv.FormatInt(*m.Limit, 10)
	}
	if c := spec.Linux.Resources.CPU; c != nil && c.Quota != nil && c.Period != nil && *c.Quota > 0 && *c.Period > 0 {
		// Two at least, as the runtime shows: with one, some programs leave out locks.
		n := max(2, int(math.Ceil(float64(*c.Quota)/float64(*c.Period))))
		flags["cpu-num"] = strconv.Itoa(min(n, processors))
	}
	return flags
}

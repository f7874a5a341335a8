//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

var _ sandbox.Restorer = (*Engine)(nil)

// Probe implements sandbox.Engine. It starts nothing: what the engine needs of the
// kernel, a call tells.
func (e *Engine) Probe(ctx context.Context) (*sandbox.Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Op: "probe", Backend: Name, Err: err}
	}
	hard := func(by string) sandbox.LimitReport { return sandbox.LimitReport{Enforcement: sandbox.Hard, By: by} }
	rep := &sandbox.Report{
		Backend: Name, Usable: true, Isolation: sandbox.WasmIsolation, Duplex: true, Snapshots: true, Single: true,
		NoFolders: noFolders, Runtime: runtimeName(),
		Limits: map[sandbox.Resource]sandbox.LimitReport{
			sandbox.Memory:    hard("the size of the interpreter's linear memory, and of its files in memory"),
			sandbox.Processes: hard("there is one, and no way to make another"),
			sandbox.CPU:       {Enforcement: sandbox.Soft, By: "the interpreter's loops, which wait when their share is used up"},
			sandbox.Disk:      hard("quotas of a file system in memory"),
			sandbox.OpenFiles: hard("the table of descriptors"),
		},
	}
	if obstacle := e.obstacle(); obstacle != nil {
		rep.Usable = false
		rep.Findings = append(rep.Findings, *obstacle)
		return rep, nil
	}
	if e.opts.Program != nil && !e.Prepared(e.opts.Program) {
		rep.Findings = append(rep.Findings, sandbox.Finding{
			Title:  "the first start takes some seconds",
			Detail: "the embedded Python is compiled for this processor once, and kept in " + e.opts.CacheDir,
		})
	}
	return rep, nil
}

// obstacle returns why the engine cannot run here, or nil.
func (e *Engine) obstacle() *sandbox.Finding {
	if _, err := e.build(); err != nil {
		return &sandbox.Finding{Fatal: true, Title: "this build of the program has no name of its own: " + err.Error(), Remedy: "install a build that has a build ID, such as a release"}
	}
	if !e.confinable() {
		return &sandbox.Finding{
			Fatal: true, Title: "this build of the program uses cgo, so not all of its threads can be confined",
			Remedy: "build it with CGO_ENABLED=0, or install a release",
		}
	}
	if err := filters(); err != nil {
		return &sandbox.Finding{
			Fatal:  true,
			Title:  "the kernel cannot confine the process that runs sessions: " + err.Error(),
			Detail: "it would be started without files, sockets and programs, by a system call filter (seccomp)",
			Remedy: "allow seccomp filters: a kernel with CONFIG_SECCOMP_FILTER, and a container whose own filter has the call seccomp",
		}
	}
	return nil
}

// confinable reports whether all threads of this program can be confined: not if it uses
// cgo, which starts threads that Go does not know.
func confinable() bool {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	return errno == 0
}

// filters returns an error unless this process could install a system call filter that
// ends processes.
func filters() error {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// Binding implements sandbox.Restorer. A snapshot is what a session has changed of its
// program's image, which the same build makes the same way from the same program.
func (e *Engine) Binding(_ context.Context, spec *sandbox.Spec) (string, error) {
	fail := func(err error) (string, error) {
		return "", &sandbox.Error{Op: "binding", Backend: Name, Err: err}
	}
	if err := check(spec); err != nil {
		return fail(err)
	}
	build, err := e.build()
	if err != nil {
		return fail(err)
	}
	program, err := spec.Program.Digest()
	if err != nil {
		return fail(err)
	}
	limits, err := json.Marshal(spec.Limits.WithDefaults())
	if err != nil {
		return fail(err)
	}
	files := sha256.New()
	for _, f := range spec.Files {
		fmt.Fprintf(files, "%q %o %d\n%s", f.Path, f.Mode, len(f.Data), f.Data)
	}
	environment := sha256.Sum256(fmt.Appendf(nil, "%q", supervise.Variables(spec.Env)))
	lines := []string{
		"engine: " + Name,
		"executable: " + build,
		strings.TrimSpace(binding()),
		"program: " + program,
		"environment: " + hex.EncodeToString(environment[:16]),
		"limits: " + string(limits),
		"files: " + hex.EncodeToString(files.Sum(nil)[:16]),
	}
	if spec.Root.Packages != "" {
		lines = append(lines, "packages: "+spec.Root.PackagesDigest())
	}
	return strings.Join(lines, "\n"), nil
}

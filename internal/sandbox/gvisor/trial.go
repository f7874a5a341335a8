//go:build linux && (amd64 || arm64)

package gvisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/private"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// A supervisor runs either with root's rights over its namespaces or in a user
// namespace of its own. The second is the only way for root without CAP_SYS_ADMIN,
// as in a container, and for root of a user namespace without other users.
const (
	rootWay   = false
	usernsWay = true
)

// ways returns the ways that this process may try, best first.
func ways() []bool {
	if os.Geteuid() == 0 && hasCapability(unix.CAP_SYS_ADMIN) {
		return []bool{rootWay, usernsWay}
	}
	return []bool{usernsWay}
}

// attempt is one way that was tried, and why it failed.
type attempt struct {
	userns bool
	err    error
}

// unusable is the error of a host on which every way fails.
type unusable struct{ attempts []attempt }

func (u *unusable) Error() string { return u.attempts[len(u.attempts)-1].err.Error() }

// way finds out whether sandboxes need a user namespace of their own here. It
// starts one that exits at once, because only that tests everything gVisor needs.
// A success is remembered for this process, and in a file for later ones in the
// same surroundings; a failure never is. The error is an *unusable if no way works.
func (b *Engine) way(ctx context.Context) (userns bool, err error) {
	b.trying.Lock()
	defer b.trying.Unlock()
	if b.works != nil {
		return *b.works, nil
	}
	surroundings := b.surroundings()
	var known []byte
	if dir, err := private.Existing(b.opts.CacheDir); err == nil {
		known, _ = dir.ReadFile(worksFile) // without it, nothing is known
		dir.Close()
	}
	if known != nil {
		for _, w := range ways() {
			if string(known) == worksText(surroundings, w) {
				b.works = &w
				return w, nil
			}
		}
	}
	return b.tryAll(ctx, surroundings)
}

// retry is way without what was remembered.
func (b *Engine) retry(ctx context.Context) error {
	b.trying.Lock()
	defer b.trying.Unlock()
	b.works = nil
	if dir, err := private.Existing(b.opts.CacheDir); err == nil {
		_ = dir.Remove(worksFile)
		dir.Close()
	}
	_, err := b.tryAll(ctx, b.surroundings())
	return err
}

// tryAll tries each way. Callers hold b.trying.
func (b *Engine) tryAll(ctx context.Context, surroundings string) (userns bool, err error) {
	if err := b.dir.Open(); err != nil {
		return false, err
	}
	failed := &unusable{}
	for _, w := range ways() {
		err := b.try(ctx, w)
		if err == nil {
			b.works = &w
			if err := b.remember(worksText(surroundings, w)); err != nil {
				b.log.Debug("cannot remember that sandboxes start here", "error", err)
			}
			return w, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		failed.attempts = append(failed.attempts, attempt{w, err})
	}
	return false, failed
}

// trialTime bounds one trial, which takes a tenth of a second.
const trialTime = 20 * time.Second

// try starts a sandbox that exits at once.
func (b *Engine) try(ctx context.Context, userns bool) error {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	cfg := &SupervisorConfig{
		ID:         "trial",
		Mountpoint: b.dir.Mountpoint(),
		Rootfs:     hostroot.Rootfs{Files: map[string]hostroot.File{"/exit": {Data: exitProgram(), Mode: 0o755}}},
		Args:       []string{"/exit"},
		// The defaults of a sandbox, for what this process's own limits could forbid.
		MemoryBytes: 64 << 20, Processes: 128, OpenFiles: 256, WorkspaceBytes: 1 << 20, TmpBytes: 1 << 20, PackagesBytes: 1 << 20,
		DebugLog:         b.opts.DebugDir,
		OwnUserNamespace: userns,
	}
	r, err := b.launch(ctx, supervise.Config{}, cfg, nil, func(int) error { return nil })
	if err != nil {
		return err
	}
	exit, err := r.Wait(ctx)
	if destroyed := r.Destroy(context.WithoutCancel(ctx)); err == nil {
		err = destroyed
	}
	if err != nil {
		return err
	}
	if exit.Reason != sandbox.Exited || exit.Code != exitProgramCode {
		return fmt.Errorf("a test program ended with status %d (%s), want %d: %s", exit.Code, exit.Reason, exitProgramCode, exit.Detail)
	}
	return nil
}

// worksFile, in the cache, remembers a trial that succeeded.
const worksFile = "gvisor-works"

func (b *Engine) remember(text string) error {
	dir, err := private.Open(b.opts.CacheDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.WriteFile(worksFile, []byte(text), 0o600)
}

func worksText(surroundings string, userns bool) string {
	return fmt.Sprintf("%s userns=%t\n", surroundings, userns)
}

// surroundings returns a digest of what decides whether a sandbox can start, as
// far as that can be read: the program, the boot, this process's rights, limits
// and namespaces, the mounts that hide parts of /proc, and the kernel's settings.
func (b *Engine) surroundings() string {
	h := sha256.New()
	if fi, err := os.Stat(b.opts.Executable); err == nil {
		at, _ := os.Readlink(executable.Own) // AppArmor's profiles are for paths
		fmt.Fprintln(h, b.opts.Executable, at, fi.Size(), fi.ModTime().UnixNano())
	}
	for _, file := range append([]string{
		"/proc/sys/kernel/random/boot_id", "/proc/self/limits", "/proc/self/attr/current", "/proc/self/uid_map", "/proc/self/gid_map",
	}, settings...) {
		content, err := os.ReadFile(file)
		fmt.Fprintf(h, "%s %q %t\n", file, content, err != nil)
	}
	for _, line := range procLines("/proc/self/status") {
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters":
			fmt.Fprintln(h, line)
		}
	}
	for _, ns := range []string{"user", "mnt", "pid", "net"} {
		link, err := os.Readlink("/proc/self/ns/" + ns)
		fmt.Fprintln(h, link, err)
	}
	for _, line := range procLines("/proc/self/mountinfo") {
		if point := mountPoint(line); point == "/" || point == "/proc" || strings.HasPrefix(point, "/proc/") {
			fmt.Fprintln(h, line)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func procLines(file string) []string {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Split(string(content), "\n")
}

// mountPoint returns the mount point in a line of mountinfo.
func mountPoint(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return ""
	}
	return fields[4]
}

func hasCapability(number uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[number/32].Effective&(1<<(number%32)) != 0
}

// exitProgramCode is the exit status of exitProgram, which no failure has.
const exitProgramCode = 42

// exitProgram returns an executable that only exits. It needs no file of the host.
func exitProgram() []byte {
	machine, code := elf.EM_X86_64, []byte{
		0xbf, exitProgramCode, 0, 0, 0, // mov edi, 42
		0xb8, unix.SYS_EXIT_GROUP & 0xff, 0, 0, 0, // mov eax, exit_group
		0x0f, 0x05, // syscall
	}
	if runtime.GOARCH == "arm64" {
		machine, code = elf.EM_AARCH64, nil
		for _, instruction := range []uint32{
			0xd2800000 | exitProgramCode<<5,     // mov x0, 42
			0xd2800008 | unix.SYS_EXIT_GROUP<<5, // mov x8, exit_group
			0xd4000001,                          // svc 0
		} {
			code = binary.LittleEndian.AppendUint32(code, instruction)
		}
	}
	const address = 0x400000
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phnum: 1,
	}
	header.Ehsize, header.Phentsize = uint16(binary.Size(header)), uint16(binary.Size(elf.Prog64{}))
	header.Phoff = uint64(header.Ehsize)
	start := uint64(header.Ehsize + header.Phentsize)
	header.Entry = address + start
	size := start + uint64(len(code))
	segment := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: address, Paddr: address, Filesz: size, Memsz: size, Align: 0x1000,
	}
	var out bytes.Buffer
	// Writing to memory cannot fail.
	err := errors.Join(binary.Write(&out, binary.LittleEndian, header), binary.Write(&out, binary.LittleEndian, segment))
	if err != nil {
		panic(err)
	}
	out.Write(code)
	return out.Bytes()
}

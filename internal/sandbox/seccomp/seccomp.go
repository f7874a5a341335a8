//go:build linux && (amd64 || arm64)

// Package seccomp assembles system call filters.
package seccomp

import "golang.org/x/sys/unix"

// Offsets in struct seccomp_data (linux/seccomp.h).
const (
	nr   = 0
	arch = 4
	args = 16
)

// A Program is a filter. Every jump skips exactly what its function's comment says.
type Program []unix.SockFilter

// Begin returns a program that has loaded the number of a call. It ends the process for
// calls of another architecture, such as i386's, which have other numbers, and returns
// abi for those of another calling convention.
func Begin(abi uint32) Program {
	var p Program
	p.load(arch)
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch})
	p.Ret(unix.SECCOMP_RET_KILL_PROCESS)
	p.load(nr)
	if otherABI != 0 {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: otherABI})
		p.Ret(abi)
	}
	return p
}

func (p *Program) load(offset uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

// Arg loads the lower half of an argument, counted from 0: both machines are
// little-endian.
func (p *Program) Arg(n uint32) { p.load(args + 8*n) }

// And masks the loaded value.
func (p *Program) And(mask uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

// Ret adds: return verdict.
func (p *Program) Ret(verdict uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict})
}

// On adds: return verdict if the loaded value equals k.
func (p *Program) On(k, verdict uint32) { p.Within(k, func(p *Program) { p.Ret(verdict) }) }

// Within adds body for a loaded value that equals k. Every path through body must end
// with a verdict.
func (p *Program) Within(k uint32, body func(*Program)) {
	var inner Program
	body(&inner)
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(inner)), K: k})
	*p = append(*p, inner...)
}

package container

import (
	"bytes"
	_ "embed"
)

// profile lists the system calls that code in a container may make: those that
// the default profiles of Docker and Podman both allow without capabilities,
// except what ordinary programs do not need. It forbids user namespaces, whose
// owner has every capability over less tested parts of the kernel; sockets other
// than Unix, IP and routing ones; inspecting other processes; and calls of other
// architectures.
//
//go:embed seccomp.json
var profile []byte

// seccomp returns the profile's path, or "" to use the engine's own profile.
// Docker's client sends the file to the daemon. A Podman service opens the path
// itself, which works on the same machine and in a virtual machine that shares the
// user's home.
func (b *Engine) seccomp(f *facts) string {
	if f.NoProfile || !f.Seccomp {
		return ""
	}
	dir := b.opts.State.Sub("seccomp")
	name := digest(profile)[:24] + ".json"
	if have, err := dir.Read(name, 1<<20); err != nil || !bytes.Equal(have, profile) {
		if err := dir.Write(name, profile); err != nil {
			b.log.Warn("the seccomp profile cannot be written; the engine's own is used", "error", err)
			return ""
		}
	}
	return dir.Path(name)
}

// filtered reports whether the container has a seccomp filter.
func (t *inspection) filtered() bool {
	v := t.inside.Status["Seccomp"]
	return len(v) > 0 && v[0] == "2"
}

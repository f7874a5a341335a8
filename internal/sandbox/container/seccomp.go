package container

import (
	"bytes"
	_ "embed"
)

// profile lists the system calls that code in a container may make: those that
// the default profiles of Docker and Podman both let through without
// capabilities, less what ordinary programs have no use for. No user
// namespaces, whose owner has every capability over the kernel's less tried
// parts; no sockets but of Unix, IP and routing; no looking into other
// processes; nothing of another architecture.
//
//go:embed seccomp.json
var profile []byte

// seccomp is the profile's file, or "" where the engine's own has to do. Docker's
// client sends the file along. A Podman service opens the path itself, which
// works on the same machine, and in a virtual machine that shows the user's home.
func (b *Backend) seccomp(f *facts) string {
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

// filtered says whether a seccomp filter was seen.
func (t *trial) filtered() bool {
	v := t.inside.Status["Seccomp"]
	return len(v) > 0 && v[0] == "2"
}

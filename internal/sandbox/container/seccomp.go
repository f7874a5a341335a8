package container

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
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

// folderProfile returns the profile for containers that see folders of the host. No
// mount option keeps code from a Unix socket in a folder: there are none but stream
// pairs. Nor can code give a file of the host the bits by which it runs as its owner.
var folderProfile = sync.OnceValue(func() []byte {
	type arg struct {
		Index    int    `json:"index"`
		Value    uint64 `json:"value"`
		ValueTwo uint64 `json:"valueTwo"`
		Op       string `json:"op"`
	}
	type rule struct {
		Names    []string `json:"names"`
		Action   string   `json:"action"`
		ErrnoRet *int     `json:"errnoRet,omitempty"`
		Args     []arg    `json:"args"`
	}
	var p map[string]json.RawMessage
	var rules []rule
	if err := errors.Join(json.Unmarshal(profile, &p), json.Unmarshal(p["syscalls"], &rules)); err != nil {
		panic(err) // it is embedded
	}
	bounded := []rule{{Names: []string{"socketpair"}, Args: []arg{{0, 1, 0, "SCMP_CMP_EQ"}, {1, 0xf, 1, "SCMP_CMP_MASKED_EQ"}}}}
	for name, mode := range map[string]int{
		"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "open": 2, "openat": 3, "mknod": 1, "mknodat": 2,
	} {
		bounded = append(bounded, rule{Names: []string{name}, Args: []arg{{mode, 0o6000, 0, "SCMP_CMP_MASKED_EQ"}}})
	}
	const whiteout = 4 // a rename that makes a device
	bounded = append(bounded, rule{Names: []string{"renameat2"}, Args: []arg{{4, whiteout, 0, "SCMP_CMP_MASKED_EQ"}}})
	slices.SortStableFunc(bounded, func(a, b rule) int { return strings.Compare(a.Names[0], b.Names[0]) })
	// Nor may code hold up others by locks on files that it can only read. A filter
	// cannot read the mode of openat2.
	gone := []string{"flock", "openat2"}
	bounded = append(bounded, rule{Names: []string{"fcntl", "fcntl64"}, Args: []arg{{1, 1024, 0, "SCMP_CMP_LT"}}})
	for command := uint64(1025); command < 1045; command++ { // without 1024, F_SETLEASE
		bounded = append(bounded, rule{Names: []string{"fcntl", "fcntl64"}, Args: []arg{{1, command, 0, "SCMP_CMP_EQ"}}})
	}
	for _, r := range bounded {
		gone = append(gone, r.Names...)
	}
	for i := range rules {
		rules[i].Names = slices.DeleteFunc(rules[i].Names, func(name string) bool { return slices.Contains(gone, name) })
	}
	rules = slices.DeleteFunc(rules, func(r rule) bool {
		unix := len(r.Names) == 1 && r.Names[0] == "socket" && r.Args[0].Value == 1
		return unix || len(r.Names) == 0
	})
	for _, r := range bounded {
		r.Action = "SCMP_ACT_ALLOW"
		rules = append(rules, r)
	}
	absent := 38 // ENOSYS of Linux, whatever this machine is
	rules = append(rules, rule{Names: []string{"flock", "openat2"}, Action: "SCMP_ACT_ERRNO", ErrnoRet: &absent})
	var err error
	if p["syscalls"], err = json.Marshal(rules); err != nil {
		panic(err)
	}
	out, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return out
})

// seccomp returns a profile's path, or "" to use the engine's own profile.
// Docker's client sends the file to the daemon. A Podman service opens the path
// itself, which works on the same machine and in a virtual machine that shares the
// user's home.
func (b *Engine) seccomp(f *facts, profile []byte) string {
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

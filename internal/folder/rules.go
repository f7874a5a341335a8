package folder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hidden are the folders in a home directory, besides all whose name begins with a
// point, in which programs keep what belongs to the user alone.
var hidden = []string{"AppData", "Library", "snap"}

// ordinary are folders below hidden ones that hold ordinary files: what is in them may
// be mounted, but not they themselves.
var ordinary = []string{
	".cache", ".local/share",
	"AppData/Local/Temp", "Library/CloudStorage", "Library/Mobile Documents",
}

// secret are exceptions from ordinary, and what is often a link to a folder elsewhere.
var secret = []string{
	".cache/chromium", ".cache/google-chrome", ".cache/huggingface/stored_tokens", ".cache/huggingface/token", ".cache/microsoft-edge", ".cache/mozilla",
	".cache/thunderbird", ".local/share/containers", ".local/share/gnome-keyring", ".local/share/keyrings", ".local/share/kwalletd",
	".local/share/pki", ".local/share/python_keyring",
	".claude", ".codex", ".config", ".docker", ".gcloud", ".gemini", ".git-credentials", ".local/state", ".mozilla", ".netrc", ".pki", ".thunderbird",
}

// anywhere are names of folders that hold keys, whoever's home they are in.
var anywhere = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store"}

// signs are folders in a home directory: a folder that has one is someone's home, or a
// copy of it.
var signs = []string{".ssh", ".gnupg"}

// system are the system's own directories. What is at and below one is refused, and
// what contains one.
var system = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/lost+found", "/nix/var", "/proc", "/root", "/run", "/sbin", "/sys", "/usr",
	"/var/backups", "/var/cache", "/var/db", "/var/lib", "/var/lock", "/var/log", "/var/mail", "/var/run", "/var/spool",
	// macOS
	"/Library", "/Network", "/System", "/cores", "/private/etc", "/private/var/at", "/private/var/backups", "/private/var/db", "/private/var/log", "/private/var/root", "/private/var/run",
	// Windows, without the drive
	"/$Recycle.Bin", "/Program Files", "/Program Files (x86)", "/ProgramData", "/Recovery", "/System Volume Information", "/Windows",
}

// shared are directories that all users write to, or that all have a part of: only
// what is in them can be mounted.
var shared = []string{"/home", "/tmp", "/var/tmp", "/private/tmp", "/Users", "/Volumes"}

// refused says why a folder is refused, which exists and has no symbolic link in its
// path; empty: it is not.
func (r Rules) refused(source string) string {
	at := newPlace(source)
	volume := filepath.VolumeName(source)
	if filepath.Dir(source) == source {
		return "that is the whole file system. Mount the folder that the code needs"
	}
	if len(volume) > 3 && (volume[2] == '.' || volume[2] == '?') {
		return "that is the path of a device. Write an ordinary path"
	}
	for _, home := range r.homes(at) {
		if why := refusedInHome(home, at); why != "" {
			return why
		}
	}
	for _, own := range r.Own {
		if filepath.IsAbs(own) && at.touches(own) {
			return "it is, contains or belongs to " + quote(own) + ", which programs keep their own files and secrets in. Mount another folder"
		}
	}
	for _, dir := range system {
		dir = volume + filepath.FromSlash(dir)
		if _, below := at.below(dir); below && !r.usable(at, dir) || at.contains(dir) {
			return "it is, contains or belongs to " + quote(dir) + ", a directory of the system. Mount a folder of yours, or copy what the code needs"
		}
	}
	for _, dir := range shared {
		if at.is(volume + filepath.FromSlash(dir)) {
			return "all users share it. Mount a folder in it"
		}
	}
	for name := range strings.SplitSeq(filepath.ToSlash(source), "/") {
		if holds(anywhere, name) {
			return quote(name) + " holds keys. Mount another folder"
		}
	}
	for _, name := range signs {
		if _, err := os.Lstat(filepath.Join(source, name)); err == nil {
			return "it has " + quote(name) + " in it, as a home directory has. Mount the folder in it that the code needs"
		}
	}
	return ""
}

// homes returns the home directories that matter to a place: those of the user, and
// one where homes are, which is often the user's, too, whatever HOME says.
func (r Rules) homes(at *place) (homes []string) {
	for _, home := range []string{r.Home, r.Account} {
		if filepath.IsAbs(home) && !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	for _, dir := range []string{"/home", "/Users"} {
		dir = filepath.VolumeName(at.path) + filepath.FromSlash(dir)
		rest, _ := at.below(dir)
		if name, _, inside := strings.Cut(rest, string(filepath.Separator)); inside {
			homes = append(homes, filepath.Join(dir, name))
		}
	}
	return homes
}

// refusedInHome is refused for a home directory.
func refusedInHome(home string, at *place) string {
	const private = "it is, contains or belongs to a hidden folder of your home directory, where programs keep passwords, keys and tokens. Mount another folder, or copy what the code needs"
	if at.is(home) || at.contains(home) {
		return "it is or contains your home directory. Mount the folder in it that the code needs"
	}
	for _, dir := range slices.Concat(anywhere, secret) {
		if at.touches(filepath.Join(home, filepath.FromSlash(dir))) { // also where a link leads from there
			return private
		}
	}
	rest, ok := at.below(home)
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, string(filepath.Separator))
	if !strings.HasPrefix(first, ".") && !holds(hidden, first) {
		return ""
	}
	for _, o := range ordinary {
		if rest, ok := at.below(filepath.Join(home, filepath.FromSlash(o))); ok && rest != "" {
			return ""
		}
	}
	return private
}

// usable reports whether a place that is in a directory of the system holds ordinary
// files: those of a user whose home is there, as root's is, or of a removable disk.
func (r Rules) usable(at *place, dir string) bool {
	if rest, ok := at.below("/run/media"); ok && rest != "" {
		return true
	}
	if r.Home == "" || !filepath.IsAbs(r.Home) {
		return false
	}
	rest, ok := newPlace(follow(r.Home)).below(dir)
	if !ok || rest == "" && filepath.Base(dir) != "root" { // HOME can be /etc
		return false
	}
	_, ok = at.below(r.Home)
	return ok
}

// holds reports whether names has name, in whatever case.
func holds(names []string, name string) bool {
	return slices.ContainsFunc(names, func(one string) bool { return alike(one, name) })
}

// alike reports whether two names or paths are one where case does not matter. Where
// it does, more is refused than need be.
func alike(a, b string) bool { return strings.EqualFold(a, b) }

// place is a folder, and the folders that it is in.
type place struct {
	path  string
	above []ancestor // from the folder itself up to the root
}

type ancestor struct {
	path string
	info os.FileInfo // nil: it does not exist
}

func newPlace(p string) *place {
	out := &place{path: p}
	for {
		info, _ := os.Stat(p) // nil
		out.above = append(out.above, ancestor{p, info})
		up := filepath.Dir(p)
		if up == p {
			return out
		}
		p = up
	}
}

// same reports whether two paths lead to one folder: by name, or by what the system
// says, which knows of case, of ways to write a letter and of bind mounts.
func (a ancestor) same(b ancestor) bool {
	return alike(a.path, b.path) || a.info != nil && b.info != nil && os.SameFile(a.info, b.info)
}

// is reports whether the place is a directory.
func (p *place) is(dir string) bool {
	rest, ok := p.below(dir)
	return ok && rest == ""
}

// below reports whether the place is a directory or is in it, and how the path goes on
// from there.
func (p *place) below(dir string) (rest string, ok bool) {
	other := newest(dir)
	for _, a := range p.above {
		if slices.ContainsFunc(other, a.same) {
			return strings.TrimPrefix(p.path[len(a.path):], string(filepath.Separator)), true
		}
	}
	return "", false
}

// contains reports whether a directory is in the place. The directory need not exist.
func (p *place) contains(dir string) bool {
	for _, one := range newest(dir) {
		for _, a := range newPlace(one.path).above[1:] {
			if a.same(p.above[0]) {
				return true
			}
		}
	}
	return false
}

// touches reports whether the place is a directory, in it, or contains it.
func (p *place) touches(dir string) bool {
	_, ok := p.below(dir)
	return ok || p.contains(dir)
}

// newest returns a directory as its path is written, and where its links lead now.
func newest(dir string) []ancestor {
	dir = filepath.Clean(dir)
	info, _ := os.Stat(dir)
	out := []ancestor{{dir, info}}
	if real := follow(dir); real != dir {
		out = append(out, ancestor{real, info})
	}
	return out
}

// follow resolves the links of a path as far as it exists.
func follow(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	up := filepath.Dir(p)
	if up == p {
		return p
	}
	return filepath.Join(follow(up), filepath.Base(p))
}

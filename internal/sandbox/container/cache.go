package container

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// cacheAge bounds how long an inspection's findings are used. Their name covers
// what they depend on, except a reinstalled daemon.
const cacheAge = 12 * time.Hour

// kept is what is remembered about an engine and an image.
type kept struct {
	At     time.Time `json:"at"`
	Facts  *facts    `json:"facts"`
	Image  *image    `json:"image"`
	Inside inside    `json:"inside"`
	Place  outside   `json:"outside"`
	Watch  bool      `json:"watch"`
	Bundle string    `json:"bundle"` // the file's digest
}

// decisive are the variables by which a client finds its engine and its
// configuration.
var decisive = []string{
	"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINER_CONNECTION",
	"CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF", "HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME",
}

// cacheKey returns a digest of everything that an inspection's findings depend on.
func (b *Engine) cacheKey(reference string) string {
	h := sha256.New()
	env := map[string]string{}
	for _, kv := range b.opts.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && slices.Contains(decisive, k) {
			env[k] = v
		}
	}
	for _, k := range decisive {
		fmt.Fprintf(h, "%s=%q\n", k, env[k])
	}
	o := b.opts
	_, boot := hostKernel()
	fmt.Fprintf(h, "%q\n", []string{o.Engine, o.User, o.Runtime, o.UserNamespace, o.Interpreter, reference, boot, fmt.Sprint(os.Getuid()), sandbox.ProgramDir})
	home := env["HOME"]
	if home == "" {
		home = env["USERPROFILE"]
	}
	path, _ := b.cli.find()
	for _, file := range append([]string{path}, configuration(home, env)...) {
		if fi, err := os.Stat(file); err == nil {
			fmt.Fprintf(h, "%s %d %d\n", file, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	// What is sent into the container, and what judges its answer.
	p, err := newInspectionPayload(o.Program, "")
	if err != nil {
		return ""
	}
	h.Write(p.Bytes())
	h.Write(profile)
	fmt.Fprintf(h, "%q", (&containerSpec{argv: command(o.Program, o.Interpreter), flags: flags{podman: o.Engine == Podman}}).args())
	return hex.EncodeToString(h.Sum(nil))[:24]
}

// configuration returns the files that make engines add things to every
// container.
func configuration(home string, env map[string]string) []string {
	files := []string{
		"/etc/docker/daemon.json", filepath.Join(home, ".docker", "config.json"),
		filepath.Join(home, ".config", "docker", "daemon.json"),
		env["CONTAINERS_CONF"], env["CONTAINERS_CONF_OVERRIDE"], env["CONTAINERS_STORAGE_CONF"],
	}
	if dir := env["DOCKER_CONFIG"]; dir != "" {
		files = append(files, filepath.Join(dir, "config.json"))
	}
	places := []string{"/usr/share/containers", "/etc/containers", filepath.Join(home, ".config", "containers")}
	if dir := env["XDG_CONFIG_HOME"]; dir != "" {
		places = append(places, filepath.Join(dir, "containers"))
	}
	for _, place := range places {
		for _, name := range []string{"containers.conf", "mounts.conf", "storage.conf", "podman-connections.json"} {
			files = append(files, filepath.Join(place, name))
		}
		for _, pattern := range []string{"containers.conf.d/*.conf", "containers.rootless.conf.d/*.conf", "oci/hooks.d/*.json"} {
			more, _ := filepath.Glob(filepath.Join(place, filepath.FromSlash(pattern))) // sorted
			files = append(files, more...)
		}
	}
	return files
}

// recall restores what an earlier inspection found, if the image is still the
// same. Callers hold probing.
func (b *Engine) recall(reference string, id string) *kept {
	name := b.cacheKey(reference)
	data, err := b.opts.Cache.Read("inspection-"+name+".json", maxFacts)
	if err != nil {
		return nil
	}
	var k kept
	if json.Unmarshal(data, &k) != nil || k.Facts == nil || k.Image == nil || k.Image.ID != id {
		return nil
	}
	if age := time.Since(k.At); age < 0 || age > cacheAge {
		return nil
	}
	bundle, err := b.opts.Cache.Read("guest-"+name+".bin", maxBundle)
	if err != nil || digest(bundle) != k.Bundle {
		return nil
	}
	k.Image.inspection = &inspection{inside: k.Inside, bundle: bundle, outside: k.Place, runtime: b.runtime(k.Facts), watched: k.Watch}
	return &k
}

// keep stores what an inspection found. A failure is only logged.
func (b *Engine) keep(reference string, f *facts, img *image) {
	name, t := b.cacheKey(reference), img.inspection
	data, err := json.Marshal(kept{At: time.Now().UTC(), Facts: f, Image: img, Inside: t.inside, Place: t.outside, Watch: t.watched, Bundle: digest(t.bundle)})
	if err == nil {
		err = b.opts.Cache.Write("guest-"+name+".bin", t.bundle)
	}
	if err == nil {
		err = b.opts.Cache.Write("inspection-"+name+".json", data)
	}
	if err != nil {
		b.log.Debug("cannot store what was found out about an image", "error", err)
	}
	b.tidy()
}

// tidy removes findings that are too old.
func (b *Engine) tidy() {
	names, err := b.opts.Cache.List()
	if err != nil {
		return
	}
	for _, name := range names {
		if fi, err := os.Stat(b.opts.Cache.Path(name)); err == nil && time.Since(fi.ModTime()) > 2*cacheAge {
			_ = b.opts.Cache.Remove(name)
		}
	}
}

// unlearn makes the next start inspect everything again.
func (b *Engine) unlearn(reference string) {
	b.probing.Lock()
	defer b.probing.Unlock()
	b.facts = nil
	delete(b.images, reference)
	_ = b.opts.Cache.Remove("inspection-" + b.cacheKey(reference) + ".json")
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

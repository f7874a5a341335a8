package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// facts is what an engine reports about itself.
type facts struct {
	Podman      bool   // also one that is installed as docker
	Version     string // of the engine
	Remote      bool   // Podman's client of a remote engine
	EnvHost     bool   // Podman's client has --env-host
	HTTPProxy   bool   // … --http-proxy
	NoProfile   bool   // a remote engine cannot read our seccomp profile
	Lowered     bool   // a remote engine may not set more than this machine's own ulimits
	UIDs, GIDs  int    // that a rootless Podman has for its containers
	Rootless    bool
	CgroupV2    bool
	Memory      bool // controllers that containers can have
	Swap        bool
	Pids        bool
	CPU         bool
	Seccomp     bool
	SELinux     bool     // containers can read only files with their label
	Remapped    bool     // Docker maps the users of containers to others
	Runtime     string   // the default OCI runtime
	Runtimes    []string // that it knows by name
	Kernel      string   // release of the machine that containers run on
	System      string   // "Docker Desktop", "fedora 41"
	Storage     string
	Controllers []string
	// Target tells engines apart: containers of one are not those of another.
	Target string
}

// ownUsers reports whether each container gets a user namespace, because nothing
// else counts their processes.
func (f *facts) ownUsers() bool {
	return f.Podman && f.Rootless && !f.Pids && f.UIDs > 1 && f.GIDs > 1
}

// where describes the engine for people.
func (f *facts) where() string {
	name := "Docker"
	if f.Podman {
		name = "Podman"
	}
	how := ", rootful"
	if f.Rootless {
		how = ", rootless"
	}
	version := "v1"
	if f.CgroupV2 {
		version = "v2"
	}
	place := ""
	if f.Remote {
		place = ", remote"
	}
	return fmt.Sprintf("%s %s%s%s, cgroup %s, OCI runtime %s", name, f.Version, how, place, version, f.Runtime)
}

// infoArgs are the arguments of info for both engines.
var infoArgs = []string{"info", "--format", "{{json .}}"}

// engineFacts asks the engine about itself.
func (c *client) engineFacts(ctx context.Context) (*facts, error) {
	out, err := c.output(ctx, infoArgs...)
	if err != nil {
		// Docker prints what its client knows and fails.
		return nil, err
	}
	f, err := parseInfo(out)
	if err != nil {
		return nil, fmt.Errorf("%s info: %w", c.engine, err)
	}
	if !f.Podman {
		return f, c.refusePodmanService(ctx)
	}
	help, err := c.output(ctx, "run", "--help")
	if err != nil {
		return nil, err
	}
	f.EnvHost, f.HTTPProxy = hasOption(help, "env-host"), hasOption(help, "http-proxy")
	f.Remote = f.Remote || !f.EnvHost
	return f, nil
}

// hasOption reports whether a command's help names the option. Clients differ,
// and list what they accept.
func hasOption(help []byte, name string) bool {
	return regexp.MustCompile(`(?m)^\s+(-\w, )?--` + name + `\b`).Match(help)
}

// errPodmanService: Docker's client is connected to a Podman service.
var errPodmanService = errors.New("docker's client is connected to Podman")

// refusePodmanService rejects a Podman service behind Docker's client: its Docker
// API lacks options that a container's isolation needs.
func (c *client) refusePodmanService(ctx context.Context) error {
	out, err := c.output(ctx, "version", "--format", "{{json .Server}}")
	if err != nil {
		return err
	}
	var server struct{ Components []struct{ Name string } }
	if err := json.Unmarshal(out, &server); err != nil {
		return fmt.Errorf("%s version: %w", c.engine, err)
	}
	for _, component := range server.Components {
		if strings.HasPrefix(component.Name, "Podman") {
			return errPodmanService
		}
	}
	return nil
}

// parseInfo reads what `podman info` and `docker info` print as JSON.
func parseInfo(data []byte) (*facts, error) {
	var either struct {
		Host          json.RawMessage `json:"host"`
		ServerVersion *string         `json:"ServerVersion"`
		ServerErrors  []string        `json:"ServerErrors"`
	}
	if err := json.Unmarshal(data, &either); err != nil {
		return nil, err
	}
	switch {
	case len(either.ServerErrors) > 0:
		return nil, errors.New(strings.Join(either.ServerErrors, "; "))
	case either.Host != nil:
		return parsePodman(data)
	case either.ServerVersion != nil && *either.ServerVersion != "":
		return parseDocker(data)
	}
	return nil, errors.New("the answer is neither Podman's nor Docker's")
}

func parsePodman(data []byte) (*facts, error) {
	var p struct {
		Host struct {
			Hostname          string   `json:"hostname"`
			CgroupVersion     string   `json:"cgroupVersion"`
			CgroupControllers []string `json:"cgroupControllers"`
			Kernel            string   `json:"kernel"`
			Distribution      struct {
				Distribution, Version string
			} `json:"distribution"`
			OCIRuntime struct {
				Name string `json:"name"`
			} `json:"ociRuntime"`
			Security struct {
				Rootless       bool `json:"rootless"`
				SECCOMPEnabled bool `json:"seccompEnabled"`
				SELinuxEnabled bool `json:"selinuxEnabled"`
			} `json:"security"`
			ServiceIsRemote bool `json:"serviceIsRemote"`
			IDMappings      struct {
				UIDMap []idRange `json:"uidmap"`
				GIDMap []idRange `json:"gidmap"`
			} `json:"idMappings"`
		} `json:"host"`
		Store struct {
			GraphDriverName string `json:"graphDriverName"`
			GraphRoot       string `json:"graphRoot"`
		} `json:"store"`
		Version struct {
			Version string `json:"Version"`
		} `json:"version"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	h := p.Host
	f := &facts{
		Podman:      true,
		Version:     p.Version.Version,
		Remote:      h.ServiceIsRemote,
		Rootless:    h.Security.Rootless,
		CgroupV2:    h.CgroupVersion == "v2",
		Seccomp:     h.Security.SECCOMPEnabled,
		SELinux:     h.Security.SELinuxEnabled,
		Runtime:     h.OCIRuntime.Name,
		Kernel:      h.Kernel,
		System:      strings.TrimSpace(h.Distribution.Distribution + " " + h.Distribution.Version),
		Storage:     p.Store.GraphDriverName,
		Controllers: h.CgroupControllers,
		Target:      "podman " + h.Hostname + " " + p.Store.GraphRoot,
	}
	if f.Rootless {
		f.UIDs, f.GIDs = ids(h.IDMappings.UIDMap), ids(h.IDMappings.GIDMap)
	}
	// A rootless Podman on cgroup v1 lists controllers but uses none.
	if !f.Rootless || f.CgroupV2 {
		f.Memory = slices.Contains(h.CgroupControllers, "memory")
		f.Pids = slices.Contains(h.CgroupControllers, "pids")
		f.CPU = slices.Contains(h.CgroupControllers, "cpu")
		f.Swap = f.Memory
	}
	return f, nil
}

// idRange is one range of a user namespace's map.
type idRange struct {
	Size int `json:"size"`
}

// ids returns the number of users or groups in a map.
func ids(ranges []idRange) int {
	sum := 0
	for _, r := range ranges {
		sum += r.Size
	}
	return sum
}

func parseDocker(data []byte) (*facts, error) {
	var d struct {
		ID              string
		Name            string
		DockerRootDir   string
		ServerVersion   string
		CgroupVersion   string
		CgroupDriver    string
		MemoryLimit     bool
		SwapLimit       bool
		PidsLimit       bool
		CPUCfsQuota     bool `json:"CpuCfsQuota"`
		SecurityOptions []string
		KernelVersion   string
		OperatingSystem string
		OSType          string
		Driver          string
		DefaultRuntime  string
		Runtimes        map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	if d.OSType != "" && d.OSType != "linux" {
		return nil, fmt.Errorf("this engine runs %s containers; Linux containers are needed (Docker Desktop: \"Switch to Linux containers\")", d.OSType)
	}
	f := &facts{
		Version:  d.ServerVersion,
		CgroupV2: d.CgroupVersion == "2",
		Memory:   d.MemoryLimit,
		Swap:     d.SwapLimit,
		Pids:     d.PidsLimit,
		CPU:      d.CPUCfsQuota,
		Runtime:  d.DefaultRuntime,
		Kernel:   d.KernelVersion,
		System:   d.OperatingSystem,
		Storage:  d.Driver,
		Target:   "docker " + d.ID + " " + d.Name + " " + d.DockerRootDir,
	}
	for name := range d.Runtimes {
		f.Runtimes = append(f.Runtimes, name)
	}
	slices.Sort(f.Runtimes)
	for _, o := range d.SecurityOptions {
		name, rest, _ := strings.Cut(strings.TrimPrefix(o, "name="), ",")
		switch name {
		case "rootless":
			f.Rootless = true
		case "selinux":
			f.SELinux = true
		case "userns":
			f.Remapped = true
		case "seccomp":
			f.Seccomp = !strings.Contains(rest, "profile=unconfined")
		}
	}
	// Rootless Docker without a cgroup driver limits nothing.
	if d.CgroupDriver == "none" {
		f.Memory, f.Swap, f.Pids, f.CPU = false, false, false, false
	}
	return f, nil
}

// image is what an engine reports about an image.
type image struct {
	ID      string
	Volumes []string
	Env     []string // the names of the variables it sets
	Arch    string
	// Interpreter is the Python in it, where that is not the engine's own.
	Interpreter string `json:",omitempty"`

	inspection *inspection // nil until one was made
}

// inspectImage returns an image, or errNoImage if the engine does not have it.
func (c *client) inspectImage(ctx context.Context, reference string) (*image, error) {
	if err := checkReference(reference); err != nil {
		return nil, err
	}
	out, err := c.output(ctx, "image", "inspect", reference)
	if err != nil {
		if failure := asFailure(err); failure == errNoImage {
			return nil, errNoImage
		}
		return nil, err
	}
	return parseImage(out)
}

// IDs become arguments of later commands.
var (
	imageID     = lazyregexp.New(`^(sha256:)?[0-9a-f]{1,64}$`)
	containerID = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// parseImage reads what `image inspect` prints.
func parseImage(data []byte) (*image, error) {
	var images []struct {
		ID           string `json:"Id"`
		Architecture string
		Os           string
		Config       struct {
			Volumes map[string]json.RawMessage
			Env     []string
		}
	}
	if err := json.Unmarshal(data, &images); err != nil {
		return nil, fmt.Errorf("image inspect: %w", err)
	}
	if len(images) == 0 || images[0].ID == "" {
		return nil, errNoImage
	}
	i := images[0]
	if !imageID().MatchString(i.ID) {
		return nil, fmt.Errorf("image inspect: %q is not an image ID", i.ID)
	}
	if i.Os != "" && i.Os != "linux" {
		return nil, fmt.Errorf("the image is for %s; use one for Linux", i.Os)
	}
	out := &image{ID: i.ID, Arch: i.Architecture}
	for path := range i.Config.Volumes {
		out.Volumes = append(out.Volumes, path)
	}
	for _, kv := range i.Config.Env {
		name, _, _ := strings.Cut(kv, "=")
		out.Env = append(out.Env, name)
	}
	var err error
	out.Volumes, err = covered(out.Volumes)
	return out, err
}

// checkReference rejects a name that a client would read as an option.
func checkReference(reference string) error {
	if reference == "" || len(reference) > 512 || strings.HasPrefix(reference, "-") || strings.ContainsAny(reference, " \t\n\x00") {
		return fmt.Errorf("%q is not the name of an image", reference)
	}
	return nil
}

// condition is the state of a container, as the engine reports it.
type condition struct {
	Status    string
	Running   bool
	OOMKilled bool
	ExitCode  int
	Pid       int
	Error     string
	ID        string
}

// inspectContainer returns a container's state.
func (c *client) inspectContainer(ctx context.Context, name string) (*condition, error) {
	out, err := c.output(ctx, "container", "inspect", name)
	if err != nil {
		return nil, err
	}
	return parseCondition(out)
}

func parseCondition(data []byte) (*condition, error) {
	var containers []struct {
		ID    string `json:"Id"`
		State condition
	}
	if err := json.Unmarshal(data, &containers); err != nil {
		return nil, fmt.Errorf("container inspect: %w", err)
	}
	if len(containers) == 0 {
		return nil, errNoContainer
	}
	out := containers[0].State
	if containerID().MatchString(containers[0].ID) {
		out.ID = containers[0].ID // control groups are known by it
	}
	return &out, nil
}

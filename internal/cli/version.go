package cli

import (
	"debug/elf"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/app"
)

// version is the program's version. The linker sets it in a release; otherwise
// it is read from the build information.
var version = ""

type versionCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

type versionInfo struct {
	Version    string `json:"version"`
	Reason     string `json:"reason,omitempty"` // why the version is only "devel"
	Commit     string `json:"commit,omitempty"`
	CommitTime string `json:"commitTime,omitempty"` // RFC 3339, UTC
	Modified   *bool  `json:"modified,omitempty"`   // whether the files differed from the commit; nil: unknown
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	GVisor     string `json:"gvisor,omitempty"` // empty: not in this build
}

// versionReport is what `version --json` prints.
type versionReport struct {
	versionInfo
	Path        string    `json:"path"`        // the executable, without symbolic links
	InstalledBy string    `json:"installedBy"` // a package manager, archive or source
	Build       buildKind `json:"build"`
}

// buildKind is how the executable was built.
type buildKind struct {
	Static   *bool    `json:"static,omitempty"` // whether it needs no dynamic linker; nil: not an ELF file
	CGO      bool     `json:"cgo"`
	Trimpath bool     `json:"trimpath"` // whether it has no paths of the machine that built it
	Tags     []string `json:"tags"`
}

func buildInfo() *debug.BuildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return info
}

func readVersion() versionInfo { return versionOf(version, buildInfo()) }

// versionOf is the version that the linker set, else the one that the go
// command recorded: that of the module, the tag of the commit, or a
// pseudo-version such as 0.0.0-20260102030405-abcdefabcdef+dirty. If there is
// none, it is "devel".
func versionOf(linked string, info *debug.BuildInfo) versionInfo {
	v := versionInfo{
		Version:  linked,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	v.Version = strings.TrimPrefix(v.Version, "v")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.CommitTime = s.Value
		case "vcs.modified":
			modified := s.Value == "true"
			v.Modified = &modified
		}
	}
	for _, d := range info.Deps {
		if d.Path == "gvisor.dev/gvisor" {
			v.GVisor = d.Version
		}
	}
	switch v.Version {
	case "":
		v.Version, v.Reason = "devel", "the executable has no build information"
	case "(devel)":
		v.Version, v.Reason = "devel", "built without version control: -buildvcs=false, or not in a clone"
	}
	return v
}

// kindOf reads how the executable at path was built.
func kindOf(path string, info *debug.BuildInfo) buildKind {
	kind := buildKind{Tags: []string{}}
	for _, s := range info.Settings {
		switch s.Key {
		case "CGO_ENABLED":
			kind.CGO = s.Value == "1"
		case "-trimpath":
			kind.Trimpath = s.Value == "true"
		case "-tags":
			kind.Tags = strings.Split(s.Value, ",")
		}
	}
	if file, err := elf.Open(path); err == nil {
		defer file.Close()
		static := !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		kind.Static = &static
	}
	return kind
}

// report returns everything that is known about this executable.
func (*versionCmd) report(u *ui) (versionReport, error) {
	path, err := app.Executable()
	if err != nil {
		return versionReport{}, fmt.Errorf("the path of this executable is unknown: %w", err)
	}
	info := buildInfo()
	return versionReport{
		versionInfo: versionOf(version, info),
		Path:        path,
		InstalledBy: u.InstalledBy(path, info, version != "").Name,
		Build:       kindOf(path, info),
	}, nil
}

// Help implements kong's HelpProvider.
func (*versionCmd) Help() string {
	return `MCP clients and servers see the same version, as serverInfo and clientInfo. With --json, prints how
the executable was built and what installed it, too: deb, rpm, apk, pacman, homebrew, nix, npm, npx, uv, uvx,
pipx, pip, scoop, winget, go install, archive (a release, unpacked) or source (built on this machine).

Examples:
  sallyport --version
  sallyport version --json | jq -r .version`
}

// Run implements the command.
func (c *versionCmd) Run(u *ui) error {
	if c.JSON {
		report, err := c.report(u)
		if err != nil {
			return err
		}
		return u.printJSON(report)
	}
	v := readVersion()
	fmt.Fprintf(u.stdio.Out, "sallyport %s (%s, %s)\n", v.Version, v.Platform, v.Go)
	if v.Reason != "" {
		fmt.Fprintf(u.stdio.Out, "devel: %s\n", v.Reason)
	}
	if v.GVisor != "" {
		fmt.Fprintf(u.stdio.Out, "gvisor %s\n", v.GVisor)
	}
	return nil
}

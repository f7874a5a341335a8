package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is the program's version. The linker sets it in a release; otherwise
// it is read from the build information.
var version = ""

type versionCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

type versionInfo struct {
	Version  string `json:"version"`
	Reason   string `json:"reason,omitempty"` // why the version is only "devel"
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	GVisor   string `json:"gvisor,omitempty"` // empty: not in this build
}

func readVersion() versionInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(version, info)
}

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
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
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

// Help implements kong's HelpProvider.
func (*versionCmd) Help() string {
	return `MCP clients and servers see the same version, as serverInfo and clientInfo.

Examples:
  sallyport --version
  sallyport version --json | jq -r .version`
}

// Run implements the command.
func (c *versionCmd) Run(u *ui) error {
	v := readVersion()
	if c.JSON {
		return u.printJSON(v)
	}
	fmt.Fprintf(u.stdio.Out, "sallyport %s (%s, %s)\n", v.Version, v.Platform, v.Go)
	if v.Reason != "" {
		fmt.Fprintf(u.stdio.Out, "devel: %s\n", v.Reason)
	}
	if v.GVisor != "" {
		fmt.Fprintf(u.stdio.Out, "gvisor %s\n", v.GVisor)
	}
	return nil
}

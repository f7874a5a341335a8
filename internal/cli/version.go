package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is the program's version: set by the linker in a release, else read
// from the build's own record.
var version = ""

type versionCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	GVisor   string `json:"gvisor,omitempty"` // empty: not in this build
}

func readVersion() versionInfo {
	v := versionInfo{
		Version:  version,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
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
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "dev"
	}
	return v
}

// Run implements the command.
func (c *versionCmd) Run(a *app) error {
	v := readVersion()
	if c.JSON {
		return a.printJSON(v)
	}
	fmt.Fprintf(a.stdio.Out, "sallyport %s (%s, %s)\n", v.Version, v.Platform, v.Go)
	if v.GVisor != "" {
		fmt.Fprintf(a.stdio.Out, "gvisor %s\n", v.GVisor)
	}
	return nil
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdio.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf16"
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
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(version, info)
}

// versionOf is the version that the linker set, else the one that the go
// command recorded: the tag of the commit, or a pseudo-version such as
// 0.0.0-20260102030405-abcdefabcdef+dirty.
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
	if v.Version == "" || v.Version == "(devel)" { // built without version control
		v.Version = "dev"
	}
	return v
}

// Help implements kong's HelpProvider.
func (*versionCmd) Help() string {
	return `Clients and servers get the same version as MCP's serverInfo and clientInfo.

Examples:
  sallyport --version
  sallyport version --json | jq -r .version`
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
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(a.stdio.Out, plainJSON(b.String()))
	return err
}

// plainJSON is a JSON text that means the same, and in which nothing does more
// to a terminal than letters do: of the control characters JSON itself lets
// some stand.
func plainJSON(text string) string {
	unseen := func(r rune) bool {
		const nonJoiner, joiner = 0x200C, 0x200D // part of writing
		return r >= 0x7F && r != nonJoiner && r != joiner && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	if !strings.ContainsFunc(text, unseen) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch high, low := utf16.EncodeRune(r); {
		case !unseen(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

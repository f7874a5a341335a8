package main

import (
	"os"
	"path/filepath"
)

// bundleName is the file of the bundle. The MCP registry wants "mcp" in its address.
func (r *release) bundleName() string { return "sallyport_" + r.version.String() + ".mcpb" }

// bundle makes the bundle that Claude Desktop installs, if there is an executable
// for each of its platforms.
func (r *release) bundle() error {
	place, err := os.MkdirTemp("", "sallyport-mcpb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	path := func(t target) string { return filepath.Join(place, t.system+"-"+t.arch) }
	needed := map[target]bool{{"linux", "amd64"}: true, {"darwin", "arm64"}: true, {"darwin", "amd64"}: true, {"windows", "amd64"}: true}
	for _, p := range r.programs {
		if !needed[p.target] {
			continue
		}
		delete(needed, p.target)
		if err := os.WriteFile(path(p.target), p.data, 0o755); err != nil {
			return err
		}
	}
	if len(needed) > 0 {
		return nil // a snapshot of some platforms
	}
	_, err = r.output(nil, "go", "run", "./scripts/mcpb", filepath.Join(r.out, r.bundleName()), r.version.String(),
		path(target{"linux", "amd64"}), path(target{"darwin", "arm64"})+","+path(target{"darwin", "amd64"}), path(target{"windows", "amd64"}))
	return err
}

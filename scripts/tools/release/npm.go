package main

import (
	"encoding/json"
	"fmt"
)

// In npm's words.
var (
	npmSystems = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32"}
	npmArchs   = map[string]string{"amd64": "x64", "arm64": "arm64"}
)

// manifest is a package.json.
type manifest struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Description  string            `json:"description"`
	MCPName      string            `json:"mcpName,omitempty"`
	Keywords     []string          `json:"keywords,omitempty"`
	Homepage     string            `json:"homepage"`
	Repository   map[string]string `json:"repository"`
	License      string            `json:"license"`
	Engines      map[string]string `json:"engines,omitempty"`
	Bin          map[string]string `json:"bin,omitempty"`
	Files        []string          `json:"files"`
	OS           []string          `json:"os,omitempty"`
	CPU          []string          `json:"cpu,omitempty"`
	PreferUnplug bool              `json:"preferUnplugged,omitempty"`
	Optional     map[string]string `json:"optionalDependencies,omitempty"`
}

// npm writes one package with the executable for each platform, and one that
// starts whichever of them npm installed. None has a script that npm runs.
func (r *release) npm() error {
	start := r.manifest("sallyport", summary)
	start.MCPName, start.Optional = registry, map[string]string{}
	start.Keywords = []string{"mcp", "model-context-protocol", "sandbox", "python", "agent", "gvisor"}
	start.Engines = map[string]string{"node": ">=18"}
	start.Bin = map[string]string{"sallyport": "bin/sallyport.js"}
	for _, t := range allTargets {
		start.Optional[npmName(t)] = r.version.String()
	}
	for _, p := range r.programs {
		m := r.manifest(npmName(p.target), fmt.Sprintf("Sallyport's executable for %s", p))
		m.OS, m.CPU, m.PreferUnplug = []string{npmSystems[p.system]}, []string{npmArchs[p.arch]}, true
		name := fmt.Sprintf("sallyport-%s-%s-%s.tgz", npmSystems[p.system], npmArchs[p.arch], r.version)
		if err := r.npmPackage(name, m, file{"bin/" + p.executable(), 0o755, p.data}); err != nil {
			return err
		}
	}
	launcher, err := r.read("packaging/npm/sallyport.js")
	if err != nil {
		return err
	}
	return r.npmPackage(fmt.Sprintf("sallyport-%s.tgz", r.version), start, file{"bin/sallyport.js", 0o755, launcher})
}

func npmName(t target) string { return "@sallyport/" + npmSystems[t.system] + "-" + npmArchs[t.arch] }

func (r *release) manifest(name, description string) manifest {
	return manifest{
		Name: name, Version: r.version.String(), Description: description, License: "Apache-2.0", Homepage: project,
		Repository: map[string]string{"type": "git", "url": "git+" + project + ".git"}, Files: []string{"bin", "NOTICE"},
	}
}

func (r *release) npmPackage(name string, m manifest, program file) error {
	about, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	program.name = "package/" + program.name
	files := []file{program, {"package/package.json", 0o644, append(about, '\n')}}
	for _, f := range r.shared {
		if f.name == "LICENSE" || f.name == "NOTICE" || f.name == "README.md" {
			files = append(files, file{"package/" + f.name, f.mode, f.data})
		}
	}
	data, err := tarred(files, r.time)
	if err != nil {
		return err
	}
	return r.write(name, data)
}

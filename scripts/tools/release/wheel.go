package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// wheelTags say on which platforms a wheel can be installed. The executables for
// Linux are static: any C library will do, also musl. Go asks for macOS 12.
var wheelTags = map[target][]string{
	{"linux", "amd64"}:   {"manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"},
	{"linux", "arm64"}:   {"manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"},
	{"darwin", "amd64"}:  {"macosx_12_0_x86_64"},
	{"darwin", "arm64"}:  {"macosx_12_0_arm64"},
	{"windows", "amd64"}: {"win_amd64"},
}

// wheels writes a wheel for each platform, which holds the executable as a
// script: pip puts it on the PATH as it is.
func (r *release) wheels() error {
	for _, p := range r.programs {
		if err := r.wheel(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) wheel(p program) error {
	tags := wheelTags[p.target]
	base := "sallyport-" + r.version.python()
	about := base + ".dist-info/"
	var wheel strings.Builder
	wheel.WriteString("Wheel-Version: 1.0\nGenerator: scripts/release\nRoot-Is-Purelib: false\n")
	for _, tag := range tags {
		fmt.Fprintf(&wheel, "Tag: py3-none-%s\n", tag)
	}
	files := []file{{base + ".data/scripts/" + p.executable(), 0o755, p.data}, {about + "WHEEL", 0o644, []byte(wheel.String())}}
	metadata := fmt.Sprintf(`Metadata-Version: 2.4
Name: sallyport
Version: %s
Summary: %s
License-Expression: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Requires-Python: >=3.8
Project-URL: Repository, %s
Keywords: mcp,model-context-protocol,sandbox,agent,gvisor
Description-Content-Type: text/markdown

`, r.version.python(), summary, project)
	for _, f := range r.shared {
		switch f.name {
		case "LICENSE", "NOTICE":
			files = append(files, file{about + "licenses/" + f.name, 0o644, f.data})
		case "README.md":
			// The MCP registry looks for this line to see whose package it is.
			metadata += string(f.data) + "\nmcp-name: " + registry + "\n"
		}
	}
	files = sorted(append(files, file{about + "METADATA", 0o644, []byte(metadata)}))
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", about)
	data, err := zipped(append(files, file{about + "RECORD", 0o644, []byte(record.String())}), r.time)
	if err != nil {
		return err
	}
	return r.write(base+"-py3-none-"+strings.Join(tags, ".")+".whl", data)
}

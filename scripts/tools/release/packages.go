package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // registers itself, as the next two do
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const maintainer = "The Sallyport Authors <sallyport@users.noreply.github.com>"

// systemPackages writes a deb, rpm and apk for each Linux platform.
// The hub's user units come with each, disabled.
func (r *release) systemPackages() error {
	for _, p := range r.programs {
		if p.system != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm", "apk"} {
			if err := r.systemPackage(p, format); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) systemPackage(p program, format string) error {
	stage, err := os.MkdirTemp("", "sallyport-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	installed, err := r.installed(p, format)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "sallyport", Arch: p.arch, Platform: "linux",
		Version: r.version.number, Prerelease: r.version.prerelease(), VersionSchema: "none", Release: "1",
		Section: "utils", Priority: "optional", Maintainer: maintainer, Vendor: "The Sallyport Authors",
		Homepage: project, License: "Apache-2.0", MTime: r.time,
		Description: summary + ".\nSallyport gives an agent one MCP tool, run_python. The code runs in a persistent\nsandbox with a kernel of its own or in WebAssembly, where every MCP server is a Python module.",
	})
	if format == "apk" {
		info.Release = "0"
	}
	info.RPM.BuildHost, info.RPM.Group = "reproducible", "Applications/System"
	for _, f := range installed {
		at := filepath.Join(stage, f.name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, f.data, f.mode); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: at, Destination: "/" + f.name,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.time},
		})
	}
	// What is not listed, rpm leaves behind.
	for _, dir := range []string{"/usr/share/doc/sallyport", "/usr/share/sallyport", "/usr/share/sallyport/completions"} {
		info.Contents = append(info.Contents, &files.Content{
			Destination: dir, Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: r.time},
		})
	}
	switch format {
	case "deb":
		info.Recommends = []string{"python3 (>= 3.9)"}
		info.Scripts.PostInstall = filepath.Join(r.top, "packaging/deb/postinst")
		info.Scripts.PostRemove = filepath.Join(r.top, "packaging/deb/postrm")
	case "rpm":
		info.Recommends = []string{"python3 >= 3.9"}
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.write(fmt.Sprintf(packageNames[format], r.version, packageArchs[format][p.arch]), out.Bytes())
}

// packageNames are those that `sallyport upgrade` mentions.
var packageNames = map[string]string{"deb": "sallyport_%s_%s.deb", "rpm": "sallyport-%s.%s.rpm", "apk": "sallyport_%s_%s.apk"}

var packageArchs = map[string]map[string]string{
	"deb": {"amd64": "amd64", "arm64": "arm64"},
	"rpm": {"amd64": "x86_64", "arm64": "aarch64"},
	"apk": {"amd64": "x86_64", "arm64": "aarch64"},
}

// installed lists the files of a package, by the paths where they go.
func (r *release) installed(p program, format string) ([]file, error) {
	list := []file{{"usr/bin/sallyport", 0o755, p.data}}
	for _, f := range r.shared {
		base, data := path.Base(f.name), f.data
		var to string
		switch {
		case base == "sallyport.bash":
			to = "usr/share/bash-completion/completions/sallyport"
		case base == "_sallyport" && format == "deb":
			to = "usr/share/zsh/vendor-completions/_sallyport"
		case base == "_sallyport":
			to = "usr/share/zsh/site-functions/_sallyport"
		case base == "sallyport.fish":
			to = "usr/share/fish/vendor_completions.d/sallyport.fish"
		case base == "sallyport.ps1":
			to = "usr/share/sallyport/completions/sallyport.ps1" // PowerShell has no directory for them
		case path.Dir(f.name) == "man":
			packed, err := gzipped(data)
			if err != nil {
				return nil, err
			}
			to, data = "usr/share/man/man1/"+base+".gz", packed
		default:
			to = "usr/share/doc/sallyport/" + base
		}
		list = append(list, file{to, 0o644, data})
	}
	others := map[string]string{
		"usr/lib/systemd/user/sallyport-hub.service": "packaging/systemd/sallyport-hub.service",
		"usr/lib/systemd/user/sallyport-hub.socket":  "packaging/systemd/sallyport-hub.socket",
	}
	if format == "deb" {
		others["usr/share/doc/sallyport/copyright"] = "LICENSE"
		others["usr/share/sallyport/apparmor/sallyport"] = "packaging/deb/apparmor"
	}
	for to, from := range others {
		data, err := r.read(from)
		if err != nil {
			return nil, err
		}
		list = append(list, file{to, 0o644, data})
	}
	return sorted(list), nil
}

func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

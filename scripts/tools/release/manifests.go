package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// manifests fills in what other package managers read: where the archives of
// this version are, and their checksums.
func (r *release) manifests() error {
	const folder = "packaging/manifests"
	entries, err := os.ReadDir(filepath.Join(r.top, folder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := r.read(folder + "/" + e.Name())
		if err != nil {
			return err
		}
		out, err := r.fill(e.Name(), string(text))
		if err != nil {
			return err
		}
		if strings.HasSuffix(e.Name(), ".json") && !json.Valid(out) {
			return fmt.Errorf("%s is not JSON", e.Name())
		}
		if err := r.write(e.Name(), out); err != nil {
			return err
		}
	}
	return nil
}

// fill executes a template. Besides the version it has, by platform: `name`, the
// archive; `url`, its address; `sum` and `sri`, its checksum in hex and as npm
// and Nix write it. A snapshot of some platforms has zeros for the others.
func (r *release) fill(name, text string) ([]byte, error) {
	platform := func(system, arch string) string { return r.archiveName(target{system, arch}) }
	checksum := func(system, arch string) (string, error) {
		digest, err := fileSum(filepath.Join(r.out, platform(system, arch)))
		if os.IsNotExist(err) && r.snapshot {
			return strings.Repeat("0", 64), nil
		}
		return digest, err
	}
	functions := template.FuncMap{
		"name": platform,
		"url": func(system, arch string) string {
			return project + "/releases/download/v" + r.version.String() + "/" + platform(system, arch)
		},
		"sum": checksum,
		"sri": func(system, arch string) (string, error) {
			digest, err := checksum(system, arch)
			if err != nil {
				return "", err
			}
			raw, err := hex.DecodeString(digest)
			return "sha256-" + base64.StdEncoding.EncodeToString(raw), err
		},
		"upper": strings.ToUpper,
		"bundle": func() (string, error) { // its checksum, if there is one
			digest, err := fileSum(filepath.Join(r.out, r.bundleName()))
			if os.IsNotExist(err) && r.snapshot {
				return "", nil
			}
			return digest, err
		},
	}
	t, err := template.New(name).Option("missingkey=error").Delims("[[", "]]").Funcs(functions).Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]string{
		"Version": r.version.String(), "Python": r.version.python(), "Summary": summary,
		"Project": project, "Registry": registry, "Date": r.time.Format("2006-01-02"),
	})
	return out.Bytes(), err
}

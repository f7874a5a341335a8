// Command mcpb makes the bundle that Claude Desktop installs: a zip file with the
// manifest, which has a settings form, and the executables.
//
//	go run ./scripts/mcpb OUT.mcpb VERSION LINUX DARWIN WINDOWS
//
// The last three are executables. DARWIN may be two of them with a comma between
// them, for arm64 and amd64, which become one universal executable. The same input
// makes the same bundle, byte for byte.
package main

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed manifest.json
var manifest []byte

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/mcpb OUT.mcpb VERSION LINUX DARWIN WINDOWS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "mcpb:", err)
		os.Exit(1)
	}
}

// run writes the bundle, whole or not at all.
func run(out, version, linux, darwin, windows string) error {
	files, err := contents(version, linux, darwin, windows)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".mcpb-*")
	if err != nil {
		return err
	}
	err = bundle(f, files)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), out)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// entry is a file of the bundle.
type entry struct {
	name string
	mode fs.FileMode
	data []byte
}

// contents returns the files of the bundle, sorted by name.
func contents(version, linux, darwin, windows string) ([]entry, error) {
	described, err := describe(version)
	if err != nil {
		return nil, err
	}
	files := []entry{
		{name: "LICENSE", mode: 0o644},
		{name: "NOTICE", mode: 0o644},
		{name: "manifest.json", mode: 0o644, data: described},
		{name: "server/darwin/sallyport", mode: 0o755},
		{name: "server/linux/sallyport", mode: 0o755},
		{name: "server/win32/sallyport.exe", mode: 0o755},
	}
	for name, path := range map[int]string{0: "LICENSE", 1: "NOTICE", 4: linux, 5: windows} {
		if files[name].data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	var slices [][]byte
	for path := range strings.SplitSeq(darwin, ",") {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		slices = append(slices, data)
	}
	if files[3].data, err = universal(slices); err != nil {
		return nil, fmt.Errorf("%s: %w", darwin, err)
	}
	return files, nil
}

var semantic = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)

// describe returns the manifest for a version.
func describe(version string) ([]byte, error) {
	version = strings.TrimPrefix(version, "v")
	if !semantic.MatchString(version) {
		return nil, fmt.Errorf("%q is not a version such as 1.2.3", version)
	}
	const placeholder = `"version": "0.0.0"`
	if bytes.Count(manifest, []byte(placeholder)) != 1 {
		return nil, errors.New("manifest.json does not have the version 0.0.0 once")
	}
	return bytes.Replace(manifest, []byte(placeholder), []byte(`"version": "`+version+`"`), 1), nil
}

// bundle writes the zip file.
func bundle(w io.Writer, files []entry) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(f.mode)
		part, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := part.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// A Wheel is one that a resolver chose.
type Wheel struct {
	Package string // its normalized name
	Version string
	File    string
	URL     string // without credentials; empty: not known
	SHA256  string
	Size    int64 // 0: not known
}

var (
	separators = lazyregexp.New(`[-_.]+`)
	sumForm    = lazyregexp.New(`^[0-9a-f]{64}$`)
)

// Normalized returns the name of a package as indexes compare it.
func Normalized(name string) string {
	return strings.ToLower(separators().ReplaceAllString(name, "-"))
}

// maxReport bounds what pip reports.
const maxReport = 64 << 20

// Resolve chooses the wheels that the requirements need, with all their
// dependencies. dir is an empty folder.
func (p Pip) Resolve(ctx context.Context, t *Target, requirements []Requirement, dir string) ([]Wheel, error) {
	if len(requirements) == 0 {
		return nil, nil
	}
	report := filepath.Join(dir, "report.json")
	err := p.run(ctx, t, requirements, dir, "install", "--dry-run", "--ignore-installed", "--target", filepath.Join(dir, "target"), "--report", report)
	if err != nil {
		if !strings.Contains(err.Error(), "no such option: --dry-run") {
			return nil, err
		}
		return p.downloaded(ctx, t, requirements, dir) // pip before 22.2
	}
	f, err := os.Open(report)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readReport(io.LimitReader(f, maxReport))
}

// readReport reads pip's installation report.
func readReport(r io.Reader) ([]Wheel, error) {
	var report struct {
		Install []struct {
			Download struct {
				URL     string `json:"url"`
				Archive struct {
					Hashes map[string]string `json:"hashes"`
					Hash   string            `json:"hash"`
				} `json:"archive_info"`
			} `json:"download_info"`
			Metadata struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"metadata"`
		} `json:"install"`
	}
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return nil, fmt.Errorf("pip's report: %w", err)
	}
	var out []Wheel
	for _, i := range report.Install {
		sum := i.Download.Archive.Hashes["sha256"]
		if sum == "" {
			sum = strings.TrimPrefix(i.Download.Archive.Hash, "sha256=")
		}
		at, err := url.Parse(i.Download.URL)
		if err != nil {
			return nil, fmt.Errorf("pip's report: the address of %q cannot be read", i.Metadata.Name)
		}
		w := Wheel{Package: Normalized(i.Metadata.Name), Version: i.Metadata.Version, File: path.Base(at.Path), SHA256: sum}
		if _, err := ParseRequirement(w.Package + "==" + w.Version); err != nil {
			return nil, fmt.Errorf("pip's report: %w", err)
		}
		if !wheelName().MatchString(w.File) {
			return nil, fmt.Errorf("pip chose %q, which is not a wheel", w.File)
		}
		if !sumForm().MatchString(sum) {
			return nil, fmt.Errorf("the index gives no SHA-256 hash for %s", w.File)
		}
		if at.Scheme == "https" || at.Scheme == "http" {
			at.User, at.RawQuery, at.Fragment = nil, "", ""
			w.URL = at.String()
		}
		out = append(out, w)
	}
	return out, nil
}

// downloaded resolves by downloading.
func (p Pip) downloaded(ctx context.Context, t *Target, requirements []Requirement, dir string) ([]Wheel, error) {
	wheels := filepath.Join(dir, "resolved")
	if err := os.Mkdir(wheels, 0o700); err != nil {
		return nil, err
	}
	if err := p.Download(ctx, t, requirements, wheels); err != nil {
		return nil, err
	}
	files, err := wheelsIn(wheels)
	if err != nil {
		return nil, err
	}
	var out []Wheel
	for _, name := range files {
		w := Wheel{File: name}
		w.Package, w.Version = NameOf(name)
		f, err := os.Open(filepath.Join(wheels, name))
		if err != nil {
			return nil, err
		}
		sum := sha256.New()
		w.Size, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		w.SHA256 = hex.EncodeToString(sum.Sum(nil))
		out = append(out, w)
	}
	return out, nil
}

// NameOf returns the package and the version of a wheel's file name.
func NameOf(file string) (name, version string) {
	name, rest, _ := strings.Cut(file, "-")
	version, _, _ = strings.Cut(rest, "-")
	return Normalized(name), version
}

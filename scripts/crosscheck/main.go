// Command crosscheck type-checks the executable for other platforms, without
// compiling it: of other modules it checks declarations only. That takes seconds
// where a build takes a minute for each; `.ci/full cross` builds them, too.
//
//	go run ./scripts/crosscheck linux/arm64 darwin/arm64 windows/amd64
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	failed := len(os.Args) < 2
	for _, target := range os.Args[1:] {
		packages, own, err := check(".", "./cmd/sallyport", target)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", target, err)
			failed = true
			continue
		}
		fmt.Printf("%s: %d packages, %d of them ours\n", target, packages, own)
	}
	if failed {
		os.Exit(1)
	}
}

// listed is a package as `go list -deps` shows it, after its dependencies.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // of the standard library's vendored packages
	Module          *struct {
		Main      bool
		GoVersion string
	}
}

// check type-checks the package at path, seen from dir, and everything that it
// imports. It returns how many packages these are, and how many of them belong
// to the main module.
func check(dir, path, target string) (packages, own int, err error) {
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return 0, 0, fmt.Errorf("want GOOS/GOARCH")
	}
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", path)
	list.Dir = dir
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := list.Start(); err != nil {
		return 0, 0, err
	}
	var found []error
	fset := token.NewFileSet()
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for dec := json.NewDecoder(out); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, 0, errors.Join(err, list.Wait())
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		files, err := parse(fset, p)
		if err != nil {
			found = append(found, err)
			continue
		}
		ours := p.Module != nil && p.Module.Main
		config := types.Config{
			Importer:         importer{checked, p.ImportMap},
			Sizes:            types.SizesFor("gc", arch),
			IgnoreFuncBodies: !ours,
			FakeImportC:      true,
			Error:            func(err error) { found = append(found, err) },
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, fset, files, nil) // Error has what it returns
		packages++
		if ours {
			own++
		}
	}
	return packages, own, errors.Join(append(found, list.Wait())...)
}

// parse reads the package's files side by side.
func parse(fset *token.FileSet, p listed) ([]*ast.File, error) {
	files, errs := make([]*ast.File, len(p.GoFiles)), make([]error, len(p.GoFiles))
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, name := range p.GoFiles {
		places <- struct{}{}
		all.Go(func() {
			files[i], errs[i] = parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			<-places
		})
	}
	all.Wait()
	return files, errors.Join(errs...)
}

// An importer finds packages that were checked before.
type importer struct {
	checked map[string]*types.Package
	renamed map[string]string
}

// Import implements types.Importer.
func (i importer) Import(path string) (*types.Package, error) {
	if to, ok := i.renamed[path]; ok {
		path = to
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not listed before", path)
}

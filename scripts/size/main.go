// Command size prints what the executable is made of: the code and the embedded
// files of each module. It fails if the executable is larger than its budget.
// Symbols and debugging information, which `-ldflags '-s -w'` leaves out, do not
// count.
//
//	go run ./scripts/size [-budget MB] bin/sallyport
package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"debug/gosym"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const standard = "the standard library"

func main() {
	budget := flag.Float64("budget", 85, "the most `MB` that the stripped executable may have")
	most := flag.Int("most", 12, "how many modules to print")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	s, err := measure(flag.Arg(0))
	if err == nil {
		err = s.addEmbedded("./cmd/sallyport")
	}
	if err == nil {
		s.print(os.Stdout, *most)
		err = s.check(*budget)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scripts/size:", err)
		os.Exit(1)
	}
}

// sizes are numbers of bytes of one executable.
type sizes struct {
	total   int64 // stripped
	tables  int64 // lines and frames of functions, for stack traces and the garbage collector
	modules map[string]*module
}

type module struct{ code, embedded int64 }

func (s *sizes) module(name string) *module {
	if s.modules[name] == nil {
		s.modules[name] = &module{}
	}
	return s.modules[name]
}

// measure reads an ELF executable. The table of its functions is in a stripped
// one too.
func measure(name string) (*sizes, error) {
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		return nil, err
	}
	stat, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	f, err := elf.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &sizes{total: stat.Size(), modules: map[string]*module{}}
	for _, section := range f.Sections {
		if section.Name == ".symtab" || section.Name == ".strtab" || strings.HasPrefix(section.Name, ".debug_") {
			s.total -= int64(section.FileSize)
		}
	}
	text, lines := f.Section(".text"), f.Section(".gopclntab")
	if text == nil || lines == nil {
		return nil, fmt.Errorf("%s has no code of Go", name)
	}
	data, err := lines.Data()
	if err != nil {
		return nil, err
	}
	s.tables = int64(len(data))
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, err
	}
	paths := []string{info.Main.Path}
	for _, d := range info.Deps {
		paths = append(paths, d.Path)
	}
	for _, fn := range table.Funcs {
		s.module(owner(fn.PackageName(), paths)).code += int64(fn.End - fn.Entry)
	}
	return s, nil
}

// owner is the module that a package belongs to.
func owner(pkg string, modules []string) string {
	// The linker escapes dots in the last element: gopkg.in/yaml%2ev3.
	pkg = strings.ReplaceAll(pkg, "%2e", ".")
	if pkg == "main" {
		return modules[0]
	}
	found := ""
	for _, m := range modules {
		if (pkg == m || strings.HasPrefix(pkg, m+"/")) && len(m) > len(found) {
			found = m
		}
	}
	return cmp.Or(found, standard)
}

// addEmbedded adds the files that //go:embed put into the program.
func (s *sizes) addEmbedded(program string) error {
	list := exec.Command("go", "list", "-deps", "-json=Dir,EmbedFiles,Module", program)
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	for dec := json.NewDecoder(out); ; {
		var p struct {
			Dir        string
			EmbedFiles []string
			Module     *struct{ Path string }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list.Wait()
		} else if err != nil {
			return errors.Join(err, list.Wait())
		}
		name := standard
		if p.Module != nil {
			name = p.Module.Path
		}
		for _, file := range p.EmbedFiles {
			stat, err := os.Stat(filepath.Join(p.Dir, file))
			if err != nil {
				return errors.Join(err, list.Wait())
			}
			s.module(name).embedded += stat.Size()
		}
	}
}

// print writes the largest modules first.
func (s *sizes) print(w io.Writer, most int) {
	names, rest, known := []string{}, module{}, s.tables
	for name, m := range s.modules {
		names = append(names, name)
		known += m.code + m.embedded
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := s.modules[a], s.modules[b]
		return cmp.Or(cmp.Compare(y.code+y.embedded, x.code+x.embedded), strings.Compare(a, b))
	})
	fmt.Fprintf(w, "%8s %8s  module\n", "code", "files")
	for i, name := range names {
		m := s.modules[name]
		if i >= most {
			rest.code, rest.embedded = rest.code+m.code, rest.embedded+m.embedded
			continue
		}
		fmt.Fprintf(w, "%8.2f %8.2f  %s\n", mb(m.code), mb(m.embedded), name)
	}
	if len(names) > most {
		fmt.Fprintf(w, "%8.2f %8.2f  %d other modules\n", mb(rest.code), mb(rest.embedded), len(names)-most)
	}
	fmt.Fprintf(w, "%8.2f           tables of functions\n", mb(s.tables))
	fmt.Fprintf(w, "%8.2f           types, constants, variables, text\n", mb(s.total-known))
	fmt.Fprintf(w, "%8.2f           MB in all, stripped\n", mb(s.total))
}

// check compares the executable with its budget.
func (s *sizes) check(budget float64) error {
	if got := mb(s.total); got > budget {
		return fmt.Errorf("the executable has %.1f MB, and may have %.0f: see the modules above for what grew", got, budget)
	}
	return nil
}

func mb(n int64) float64 { return float64(n) / 1e6 }

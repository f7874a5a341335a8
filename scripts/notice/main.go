// Command notice writes NOTICE: what Sallyport is, whose work is linked into
// its executable, and under which licence. It reads the module cache, so it
// needs no network once the modules are there.
//
//	go run ./scripts/notice          writes NOTICE
//	go run ./scripts/notice -check   fails when NOTICE is not what it would write
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// head is the part that a person writes.
//
//go:embed head.txt
var head string

// interpreter has the licences of the Python in the executable, for people to read.
const interpreter = "internal/sandbox/wasm/interpreter/LICENSES"

// platforms are those that a release is built for; what is linked differs.
var platforms = []struct{ os, arch string }{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"windows", "amd64"},
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// A component is one thing that the executable carries.
type component struct {
	name, version string
	licence       string
	copyrights    []string
	text          string // the licence, whole
	notice        string // a NOTICE file of its own, which Apache-2.0 asks to pass on
}

func main() {
	check := flag.Bool("check", false, "compare with NOTICE instead of writing it")
	out := flag.String("o", "NOTICE", "the file")
	pkg := flag.String("pkg", "./cmd/sallyport", "the executable's package")
	flag.Parse()
	if err := run(*pkg, *out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "notice:", err)
		os.Exit(1)
	}
}

func run(pkg, out string, check bool) error {
	components, err := collect(pkg)
	if err != nil {
		return err
	}
	embedded, err := os.ReadFile(interpreter)
	if err != nil {
		return err
	}
	want := append(render(components), "\n"+rule+"The Python in the executable\n"+rule+"\n"...)
	want = append(want, tidy(embedded)...)
	if !check {
		return os.WriteFile(out, want, 0o644)
	}
	have, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%s is stale: run `go run ./scripts/notice`", out)
	}
	return nil
}

func collect(pkg string) ([]component, error) {
	modules := map[string]module{}
	for _, p := range platforms {
		if err := linked(pkg, p.os, p.arch, modules); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", p.os, p.arch, err)
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	// The version of Go is left out: a patch release is no change of terms.
	std, err := describe("The Go standard library and runtime", "", strings.TrimSpace(string(goroot)))
	if err != nil {
		return nil, err
	}
	components := []component{std}
	paths := make([]string, 0, len(modules))
	for path := range modules {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	for _, path := range paths {
		m := modules[path]
		c, err := describe(m.Path, m.Version, m.Dir)
		if err != nil {
			return nil, err
		}
		components = append(components, c)
	}
	return components, nil
}

// linked adds the modules of every package that the executable links.
func linked(pkg, goos, goarch string, into map[string]module) error {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	cmd.Stderr = os.Stderr
	raw, err := cmd.Output()
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		var p struct{ Module *module }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m := p.Module; m != nil && !m.Main {
			if m.Replace != nil {
				m = m.Replace
			}
			into[m.Path] = *m
		}
	}
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)(\.(txt|md))?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice(\.(txt|md))?$`)
	copyright   = regexp.MustCompile(`(?im)^\W*(copyright (\(c\)|©|\d{4}).*)$`)
)

func describe(name, version, dir string) (component, error) {
	c := component{name: name, version: version}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	for _, e := range entries {
		switch {
		case e.IsDir():
		case licenceFile.MatchString(e.Name()):
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return c, err
			}
			c.text += tidy(text)
		case noticeFile.MatchString(e.Name()):
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return c, err
			}
			c.notice += tidy(text)
		}
	}
	if c.text == "" {
		return c, fmt.Errorf("%s: no licence file in %s", name, dir)
	}
	c.licence = identify(c.text)
	if c.licence == "" {
		return c, fmt.Errorf("%s: unknown licence: read it, then add it to identify", name)
	}
	seen := map[string]bool{}
	for _, m := range copyright.FindAllStringSubmatch(c.text, -1) {
		line := strings.TrimSpace(m[1])
		if !seen[line] && !strings.Contains(line, "yyyy") {
			seen[line] = true
			c.copyrights = append(c.copyrights, line)
		}
	}
	return c, nil
}

func tidy(text []byte) string {
	s := strings.ReplaceAll(string(text), "\r\n", "\n")
	return strings.Trim(s, "\n") + "\n"
}

// identify names every licence that the text holds, in SPDX's words.
func identify(text string) string {
	t := strings.Join(strings.Fields(text), " ")
	var found []string
	for _, l := range []struct{ id, phrase string }{
		{"Apache-2.0", "Apache License Version 2.0, January 2004"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"BSD", "Redistribution and use in source and binary forms"},
		{"MPL-2.0", "Mozilla Public License Version 2.0"},
		{"CC-BY-4.0", "Creative Commons Attribution 4.0 International"},
	} {
		if !strings.Contains(t, l.phrase) {
			continue
		}
		id := l.id
		if id == "BSD" {
			id = "BSD-2-Clause"
			if strings.Contains(t, "Neither the name") {
				id = "BSD-3-Clause"
			}
		}
		found = append(found, id)
	}
	return strings.Join(found, " AND ")
}

const rule = "================================================================================\n"

func render(components []component) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	b.WriteString("\n" + rule + "Linked into the executable\n" + rule + "\n")
	for _, c := range components {
		fmt.Fprintf(&b, "%s\n", strings.TrimSpace(c.name+" "+c.version))
		fmt.Fprintf(&b, "    %s\n", c.licence)
		for _, line := range c.copyrights {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}

	for _, c := range components {
		if c.notice != "" {
			fmt.Fprintf(&b, "\n%sNOTICE of %s\n%s\n%s", rule, c.name, rule, c.notice)
		}
	}

	// Components under one identical text share one copy of it.
	var order []string
	users := map[string][]string{}
	for _, c := range components {
		if users[c.text] == nil {
			order = append(order, c.text)
		}
		users[c.text] = append(users[c.text], c.name)
	}
	for _, text := range order {
		fmt.Fprintf(&b, "\n%sLicence of\n", rule)
		for _, name := range users[text] {
			fmt.Fprintf(&b, "    %s\n", name)
		}
		fmt.Fprintf(&b, "%s\n%s", rule, text)
	}
	return b.Bytes()
}

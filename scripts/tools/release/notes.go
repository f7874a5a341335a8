package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// kinds are those of changelog/TEMPLATE.md, in the order of the notes.
var kinds = []string{"Security", "Change", "Feature", "Fix"}

// notes writes RELEASE_NOTES.md from the version's folder of the changelog, or
// from what is unreleased for a snapshot or a version before 1.2.3, as 1.2.3-rc.1.
func (r *release) notes() error {
	folder := filepath.Join("changelog", r.version.String())
	_, err := os.Stat(filepath.Join(r.top, folder))
	if errors.Is(err, fs.ErrNotExist) {
		if r.version.word == "" {
			return fmt.Errorf("there is no %s: git mv changelog/unreleased %s, commit, and move the tag", folder, folder)
		}
		folder, err = filepath.Join("changelog", "unreleased"), nil
	}
	if err != nil {
		return err
	}
	text, err := notes(os.DirFS(filepath.Join(r.top, folder)), r.version)
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	return r.write("RELEASE_NOTES.md", []byte(text))
}

// notes joins the entries of a folder, by kind and then by file name.
func notes(folder fs.FS, v version) (string, error) {
	names, err := fs.Glob(folder, "*.md")
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "", errors.New("no entries")
	}
	sections := map[string][]string{}
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return "", err
		}
		first, rest, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		kind, title, ok := strings.Cut(first, ": ")
		if !ok {
			return "", fmt.Errorf("%s does not begin with a kind: see changelog/TEMPLATE.md", name)
		}
		sections[kind] = append(sections[kind], "### "+title+"\n\n"+strings.TrimSpace(rest)+"\n")
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Sallyport %s\n", v)
	for _, kind := range kinds {
		for i, entry := range sections[kind] {
			if i == 0 {
				fmt.Fprintf(&text, "\n## %s\n", kind)
			}
			text.WriteString("\n" + entry)
		}
		delete(sections, kind)
	}
	for kind := range sections {
		return "", fmt.Errorf("the kind %q is none of %s", kind, strings.Join(kinds, ", "))
	}
	fmt.Fprintf(&text, "\n## Install and verify\n\n%s/blob/v%s/docs/INSTALL.md\n", project, v)
	return text.String(), nil
}

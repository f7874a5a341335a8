package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// absolute makes an absolute path of one that a person wrote: ~ is the home
// directory, and a relative path starts at the place where the setting was
// written.
func (at place) absolute(path string) (string, error) {
	if err := isPrintable(path); err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if at.home == "" {
			return "", errors.New("~ cannot be used: there is no home directory")
		}
		return filepath.Join(at.home, rest), nil
	}
	if !filepath.IsAbs(path) && at.dir != "" {
		return filepath.Join(at.dir, path), nil
	}
	return filepath.Clean(path), nil
}

// existing returns the absolute path of an existing file.
func (at place) existing(path string) (string, error) {
	path, err := at.absolute(path)
	if err != nil {
		return "", err
	}
	if at.needs != nil {
		at.needs(path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", errors.New("there is no such file")
	case err != nil:
		return "", fmt.Errorf("it cannot be read: %w", errors.Unwrap(err))
	case info.IsDir():
		return "", errors.New("it is a folder, and a file is needed")
	}
	return path, nil
}

func path(field *string, read func(string, place) (string, error), kind string) *scalar[string] {
	return &scalar[string]{
		field: field, read: read,
		print: func(s string) string { return s },
		forms: asText, name: kind,
	}
}

func folderPath(field *string) *scalar[string] {
	return path(field, func(s string, at place) (string, error) { return at.absolute(s) }, "path of a folder")
}

func file(field *string) *scalar[string] {
	return path(field, func(s string, at place) (string, error) { return at.existing(s) }, "path of a file")
}

// program reads a name to look up, or an absolute path. A relative path would
// depend on where a client happens to start us.
func program(field *string) *scalar[string] {
	return path(field, func(s string, at place) (string, error) {
		if !strings.ContainsAny(s, `/\`) {
			return s, isPrintable(s)
		}
		if !strings.HasPrefix(s, "~") && !filepath.IsAbs(s) {
			return "", errors.New("neither a name nor an absolute path")
		}
		return at.absolute(s)
	}, "name or absolute path")
}

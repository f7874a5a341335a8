package settings

import (
	"errors"
	"fmt"
	"strings"
)

// ConfigPath returns the path of the configuration file that these sources have.
// It is empty if there is no place for one.
func ConfigPath(src Sources) string { return FileOf(src).Path }

// FileOf returns the configuration file that these sources have, without reading
// it.
func FileOf(src Sources) File {
	path, named := configFile(src)
	return File{Path: path, Named: named}
}

// MaxFile bounds a configuration file, in bytes.
const MaxFile = maxFile

// CheckFile returns what is wrong with the content of a configuration file at a
// path, as Load does for the file alone: it does not relate the file's settings to
// those from elsewhere. needs are the files that the settings name, and that must
// exist. The home directory may be empty.
func CheckFile(path, home string, content []byte) (problems []Problem, needs []string) {
	_, l, needs := checkFile(path, home, content)
	problems = l.problems.Problems
	if more := l.problems.more; more > 0 {
		problems = append(problems, Problem{File: path, Message: fmt.Sprintf("%d more problems are not shown", more)})
	}
	return problems, needs
}

func checkFile(path, home string, content []byte) (s *Settings, l *loader, needs []string) {
	s = &Settings{}
	l = newLoader(s, home, "")
	l.needs = func(path string) { needs = append(needs, path) }
	s.file.Path = path
	if len(content) > maxFile {
		l.add(Problem{File: path, Message: fmt.Sprintf("it is larger than %d KiB", maxFile>>10)})
	} else {
		l.readYAML(path, content)
	}
	return s, l, needs
}

// Validate reports what is wrong with the content of a configuration file at a
// path, as Load does if there is nothing but the file. The home directory may be
// empty.
func Validate(path, home string, content []byte) error {
	s, l, _ := checkFile(path, home, content)
	if len(l.problems.Problems) == 0 {
		l.relate(s)
	}
	if len(l.problems.Problems) > 0 {
		return &l.problems
	}
	return nil
}

// Value returns a value for a configuration file, as YAML on one line. Its parts
// are what a person wrote on a command line in the folder dir: one part, or
// several for a list. A secret is accepted if hidden says that it was not written
// there.
func Value(key string, parts []string, home, dir string, hidden bool) (string, error) {
	s := &Settings{}
	l := newLoader(s, home, dir)
	l.declareFor(key)
	e := l.settings[key]
	if e == nil {
		return "", wrong(key, errors.New(l.unknown(key)))
	}
	at := place{dir: dir, home: home}
	lister, isList := e.value.(lister)
	text := strings.Join(parts, " ")
	var err error
	switch {
	case isList && text == "":
		err = lister.setList(nil, at)
	case isList && len(parts) > 1:
		err = lister.setList(parts, at)
	case text == "":
		err = errors.New("it is empty: 'sallyport config unset " + key + "' removes a setting")
	case len(parts) > 1:
		err = errors.New("it takes one value: quote one that has spaces")
	case e.value.kind() == "secret":
		if !hidden && !isReference(text) {
			err = errors.New("every program can read a secret on a command line: write - and give it on standard input, or name file:/PATH or keyring:NAME")
		} else if err = e.assign(text, at); err == nil {
			return QuoteYAML(text), nil
		}
	default:
		err = e.assign(text, at)
	}
	if err != nil {
		return "", wrong(key, err)
	}
	return fileText(e.value), nil
}

// Known returns an error that suggests the nearest setting if there is no such
// setting.
func Known(key string) error {
	l := newLoader(&Settings{}, "", "")
	l.declareFor(key)
	if l.settings[key] == nil {
		return wrong(key, errors.New(l.unknown(key)))
	}
	return nil
}

// KeysOf returns the key of a setting, or those of all settings of an environment
// ("environments.NAME"). Its error is that of Known.
func KeysOf(key string) ([]string, error) {
	name, found := strings.CutPrefix(key, EnvironmentsKey+".")
	if !found || CheckEnvironmentName(name) != nil {
		return []string{key}, Known(key)
	}
	var keys []string
	for _, s := range declareEnvironment(&Environment{Name: name}) {
		keys = append(keys, s.key)
	}
	return keys, nil
}

func wrong(key string, err error) error {
	return &Error{Problems: []Problem{{Name: key, Message: oneLine(err.Error())}}}
}

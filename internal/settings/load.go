package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Layer is one of the places that settings come from.
type Layer string

// The layers; later ones win.
const (
	LayerDefault     Layer = "default"
	LayerFile        Layer = "file"
	LayerEnvironment Layer = "environment"
	LayerFlag        Layer = "flag"
)

// Origin says where a value came from.
type Origin struct {
	Layer Layer  `json:"layer"`
	Name  string `json:"name,omitempty"` // the name of the file, the variable or the flag
	Line  int    `json:"line,omitempty"` // in the file
}

// Overrides reports whether it is a variable or a flag, which the file cannot change.
func (o Origin) Overrides() bool { return o.Layer == LayerEnvironment || o.Layer == LayerFlag }

func (o Origin) String() string {
	switch {
	case o.Layer == LayerDefault:
		return "default"
	case o.Line > 0:
		return o.Name + ":" + strconv.Itoa(o.Line)
	}
	return o.Name
}

// Sources are the inputs that settings are read from.
type Sources struct {
	// Environ is the environment.
	Environ map[string]string
	// Home is the user's home directory, or empty.
	Home string
	// Dir is the working directory. Relative paths in variables and flags are
	// relative to it. No settings are read from it.
	Dir string
	// ConfigFile, if not empty, is read instead of the user's default file, and
	// must exist.
	ConfigFile string
	// Flags are applied in order.
	Flags []Flag
}

// A Flag is a setting given on the command line.
type Flag struct {
	Name string // as the user wrote it: "--python"
	Key  string
	// Value is the value as an environment variable would give it. Values, if not
	// nil, has the parts of a list instead.
	Value  string
	Values []string
}

// A Problem is one thing that is wrong.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // 0: the file as a whole
	Name    string `json:"name,omitempty"` // of the variable or the flag
	Message string `json:"message"`
	// Brief is the message without values of settings and without directories, for
	// those who may not know them; empty where the message has none.
	Brief string `json:"-"`
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteString(":" + strconv.Itoa(p.Line))
	}
	b.WriteString(p.Name)
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error lists everything that is wrong with the settings.
type Error struct {
	Problems []Problem
	more     int // how many problems were not kept
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 && e.more == 0 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d settings are wrong:", len(e.Problems)+e.more)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	if e.more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.more)
	}
	return b.String()
}

// maxProblems bounds the problems in one error.
const maxProblems = 20

// loader holds the state of one Load.
type loader struct {
	target    *Settings
	settings  map[string]*setting
	keys      []string // in order of declaration
	dir, home string
	needs     func(path string) // gets the files that settings of a file name
	problems  Error
}

func newLoader(s *Settings, home, dir string) *loader {
	l := &loader{target: s, settings: map[string]*setting{}, home: home, dir: dir}
	s.entries = declare(s)
	for _, e := range s.entries {
		l.settings[e.key] = e
		l.keys = append(l.keys, e.key)
		e.origin = Origin{Layer: LayerDefault}
		if e.initial == "" {
			continue
		}
		if err := e.value.set(e.initial, place{}); err != nil {
			panic("settings: the default of " + e.key + ": " + err.Error()) // a mistake in declare, which the tests run
		}
	}
	return l
}

func (l *loader) add(p Problem) {
	p.Message = oneLine(p.Message)
	if l.full() {
		l.problems.more++
		return
	}
	l.problems.Problems = append(l.problems.Problems, p)
}

func (l *loader) full() bool { return len(l.problems.Problems) >= maxProblems }

// Load reads all layers. If anything is wrong, it returns no settings, and the
// error is an [*Error] with all problems.
func Load(src Sources) (*Settings, error) {
	s := &Settings{sources: src}
	l := newLoader(s, src.Home, src.Dir)
	s.StateDir = stateDir(src)

	s.file.Path, s.file.Named = configFile(src)
	if s.file.Path != "" {
		content, there, err := readFile(s.file.Path, s.file.Named)
		if err != nil {
			l.add(Problem{File: s.file.Path, Message: err.Error()})
		} else if s.file.Read = there; there {
			l.readYAML(s.file.Path, content)
		}
	}
	for _, e := range s.entries {
		if e.strength != nil {
			e.least = e.strength()
		}
	}
	l.readEnvironment(src.Environ)
	l.readFlags(src.Flags)
	if len(l.problems.Problems) == 0 {
		l.relate(s)
	}
	if len(l.problems.Problems) > 0 {
		return nil, &l.problems
	}
	return s, nil
}

// Reload loads the settings again, from where they came.
func (s *Settings) Reload() (*Settings, error) { return Load(s.sources) }

// configFile returns the path of the configuration file, and whether the user
// named it.
func configFile(src Sources) (string, bool) {
	named := src.ConfigFile
	if named == "" {
		named = src.Environ[fileVariable]
	}
	if named != "" {
		if path, err := (place{dir: src.Dir, home: src.Home}).absolute(named); err == nil {
			return path, true
		}
		return named, true
	}
	if dir := base(src, "XDG_CONFIG_HOME", ".config"); dir != "" {
		return filepath.Join(dir, "sallyport", "config.yaml"), false
	}
	return "", false
}

func stateDir(src Sources) string {
	if dir := base(src, "XDG_STATE_HOME", ".local", "state"); dir != "" {
		return filepath.Join(dir, "sallyport")
	}
	return ""
}

// base returns a base directory of the XDG specification, which says to ignore
// a relative one.
func base(src Sources, variable string, under ...string) string {
	if dir := src.Environ[variable]; filepath.IsAbs(dir) {
		return dir
	}
	if src.Home == "" || !filepath.IsAbs(src.Home) {
		return ""
	}
	return filepath.Join(append([]string{src.Home}, under...)...)
}

func (l *loader) readFlags(flags []Flag) {
	for _, f := range flags {
		s := l.settings[f.Key]
		if s == nil || s.fileOnly {
			message := l.unknown(f.Key)
			switch {
			case strings.HasPrefix(f.Key, EnvironmentsKey+"."):
				message = "environments are only in the configuration file: 'sallyport env add' and 'sallyport config set' write it"
			case s != nil:
				message = f.Key + " is only in the configuration file: 'sallyport config set' writes it"
			}
			l.add(Problem{Name: f.Name, Message: message})
			continue
		}
		at := place{dir: l.dir, home: l.home}
		var err error
		before := s.value.text()
		lister, isList := s.value.(lister)
		switch {
		case f.Values != nil && isList:
			err = lister.setList(f.Values, at)
		case f.Values != nil:
			err = errors.New("not a list")
		case f.Value == "" && isList:
			err = lister.setList(nil, at)
		case f.Value == "":
			err = errors.New("it is empty")
		case s.value.kind() == "secret" && !isReference(f.Value):
			err = errors.New("every program can read a secret on a command line: use " + strings.Join(s.variables(), " or ") + ", the configuration file, file:/PATH or keyring:NAME")
		default:
			err = s.assign(f.Value, at)
		}
		if err != nil {
			l.add(Problem{Name: f.Name, Message: err.Error()})
			continue
		}
		s.came(Origin{Layer: LayerFlag, Name: f.Name}, before)
	}
}

// unknown returns the message for an unknown key.
func (l *loader) unknown(key string) string {
	candidates := []string{RulesKey, EnvironmentsKey}
	for _, k := range l.keys {
		candidates = append(candidates, k)
		if section := l.settings[k].section(); section != "" {
			candidates = append(candidates, section)
		}
	}
	message := "there is no setting " + quote(key)
	best, near := nearest(key, candidates, ".")
	if !near {
		if section := l.sectionOf(key); section != "" {
			return message + "; " + section + " has " + strings.Join(l.under(section), ", ")
		}
		return message + "; the nearest is " + best
	}
	message += "; did you mean " + best
	if l.settings[best] == nil && best != RulesKey && best != EnvironmentsKey {
		message += " (a section, with " + strings.Join(l.under(best), ", ") + ")"
	}
	return message + "?"
}

// sectionOf returns the section that a key is in, if it exists.
func (l *loader) sectionOf(key string) string {
	i := strings.LastIndexByte(key, '.')
	if i < 0 || len(l.under(key[:i])) == 0 {
		return ""
	}
	return key[:i]
}

// relate checks settings against each other. One that was not set is adjusted.
func (l *loader) relate(s *Settings) {
	isDefault := func(key string) bool { return l.settings[key].origin.Layer == LayerDefault }
	t := &s.Timeouts
	if isDefault("timeouts.default") {
		t.Default = min(t.Default, t.Max)
	}
	if isDefault("timeouts.wholeRun") {
		t.WholeRun = max(t.WholeRun, t.Max)
	}
	if isDefault("runs.timeout") {
		s.Runs.Timeout = min(s.Runs.Timeout, s.Runs.MaxTimeout)
	}
	if s.Tools.RunPod && !slices.Contains(s.BatchServices, ServiceRunPod) {
		l.add(Problem{Message: fmt.Sprintf("tools.runpod is on (%s), but batch.services does not name runpod: add it there, or turn the tools off", l.settings["tools.runpod"].origin)})
	}
	if s.Environment != "" {
		if err := s.CheckEnvironment(s.Environment); err != nil {
			p := Problem{Message: "environment: " + err.Error()}
			if o := l.settings["environment"].origin; o.Layer == LayerFile {
				p.File, p.Line = o.Name, o.Line
			} else {
				p.Name = o.Name
			}
			l.add(p)
		}
	}
	l.order("runs.timeout", "runs.maxTimeout", s.Runs.Timeout <= s.Runs.MaxTimeout)
	l.order("timeouts.default", "timeouts.max", t.Default <= t.Max)
	l.order("timeouts.max", "timeouts.wholeRun", t.Max <= t.WholeRun)
}

// order reports a problem if the first of two settings exceeds the second.
func (l *loader) order(first, second string, ok bool) {
	if ok {
		return
	}
	a, b := l.settings[first], l.settings[second]
	at := Problem{Message: fmt.Sprintf("%s is %s (%s), more than %s, which is %s (%s): lower the first, or raise the second with %s",
		first, a.value.text(), a.origin, second, b.value.text(), b.origin, strings.Join(b.variables(), " or "))}
	l.add(at)
}

// quote quotes a value for a message.
func quote(s string) string { return strconv.Quote(clip(s)) }

// clip shortens a value for a message.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for !utf8.ValidString(s) && len(s) > most-utf8.UTFMax {
		s = s[:len(s)-1]
	}
	return s + "…"
}

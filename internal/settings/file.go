package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a configuration file.
const maxFile = 64 << 10

// File is the configuration file: its path, which is empty if there is no place
// for one, and whether it was read.
type File struct {
	Path string `json:"path"`
	Read bool   `json:"read"`
	// Named means that the user named the file, which must exist.
	Named bool `json:"-"`
}

// readFile returns the contents of the file. It returns nothing if the file
// does not exist and need not.
func readFile(path string, must bool) ([]byte, bool, error) {
	b, _, err := ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, Missing(path, must)
	}
	return b, err == nil, err
}

// ReadFile returns the contents of a regular file of at most that many bytes, and
// what the file was when it was opened. The error does not say where the file is;
// it is fs.ErrNotExist if there is none.
func ReadFile(path string, most int) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fs.ErrNotExist
	case err != nil:
		return nil, nil, unreadable(err)
	case !info.Mode().IsRegular(): // to open a pipe could take forever
		return nil, nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, unreadable(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, unreadable(err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, nil, unreadable(err)
	}
	if len(b) > most {
		return nil, nil, fmt.Errorf("it is larger than %d KiB", most>>10)
	}
	return b, info, nil
}

// unreadable leaves the path out of an error.
func unreadable(err error) error {
	if why := errors.Unwrap(err); why != nil {
		err = why
	}
	return fmt.Errorf("it cannot be read: %w", err)
}

// Missing returns what is wrong with a configuration file that does not exist.
// Nothing is, unless it must exist, a link leads to it, or a file next to it looks
// like ours and would be ignored silently.
func Missing(path string, must bool) error {
	if err := Dangling(path); err != nil {
		return err
	}
	if must {
		return errors.New("there is no such file")
	}
	if others := Lookalikes(path); len(others) > 0 {
		return fmt.Errorf("there is no such file, but there is %s next to it, which is not read: write YAML (JSON is YAML, too) into %s", others[0], filepath.Base(path))
	}
	return nil
}

// Dangling returns an error for a path that leads to nothing through a symbolic
// link, at its end or on the way.
func Dangling(path string) error {
	for {
		if _, err := os.Lstat(path); err == nil {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return errors.New("a symbolic link leads to it, whose target does not exist: restore the target, or remove the link")
			}
			return nil
		}
		above := filepath.Dir(path)
		if above == path {
			return nil
		}
		path = above
	}
}

// Lookalikes returns the names of the files next to a configuration file that a
// person may have written in its place.
func Lookalikes(path string) []string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil // what is there cannot be read, or does not exist
	}
	var out []string
	for _, e := range entries {
		if e.Name() != filepath.Base(path) && slices.Contains([]string{"config.yaml", "config.yml", "config.json", "config.toml"}, strings.ToLower(e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out
}

// RulesKey is the key of the rules for calls, which are no setting: a list of
// rules that is read again whenever it changes.
const RulesKey = "policy.tools"

// ProfileKey is the key of the setting that decides on calls that no rule is about.
const ProfileKey = "policy.profile"

// A reader fills settings from one file.
type reader struct {
	*loader
	path string
	at   place
	seen map[string]int // the line where each key was read
}

// readYAML reads one YAML document of settings. It adds what is wrong to the
// loader's problems.
func (l *loader) readYAML(path string, content []byte) {
	r := &reader{loader: l, path: path, seen: map[string]int{}}
	r.at = place{dir: filepath.Dir(path), home: l.home, needs: l.needs}
	body, wrong := ParseYAML(path, content)
	if wrong != nil {
		r.add(*wrong)
	} else if body != nil {
		r.mapping("", body)
	}
}

// ParseYAML parses the one YAML document of a file. The body is nil if it says
// nothing.
func ParseYAML(path string, content []byte) (body ast.Node, wrong *Problem) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if i := firstNotText(content); i >= 0 {
		return nil, &Problem{File: path, Line: 1 + bytes.Count(content[:i], []byte("\n")), Message: "it is not valid UTF-8"}
	}
	parsed, err := parser.ParseBytes(content, 0)
	if err != nil {
		return nil, syntax(path, err)
	}
	for _, doc := range parsed.Docs {
		switch doc.Body.(type) {
		case nil, *ast.NullNode, *ast.DirectiveNode:
			continue
		}
		if body != nil {
			return nil, &Problem{File: path, Line: LineOf(doc.Body), Message: "a second document begins here: a file has only one"}
		}
		body = doc.Body
	}
	return body, nil
}

func firstNotText(b []byte) int {
	for i := 0; i < len(b); {
		c, n := utf8.DecodeRune(b[i:])
		if c == 0 || c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func (r *reader) problem(line int, format string, args ...any) {
	r.add(Problem{File: r.path, Line: line, Message: fmt.Sprintf(format, args...)})
}

// private is problem for a message that quotes a value, which may be a secret or a
// path. brief is the message without it.
func (r *reader) private(line int, brief, format string, args ...any) {
	r.add(Problem{File: r.path, Line: line, Brief: brief, Message: fmt.Sprintf(format, args...)})
}

// syntax reports in one line what the parser reports with an excerpt.
func syntax(path string, err error) *Problem {
	var at interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &at) {
		return &Problem{File: path, Message: "it is not YAML: " + clip(err.Error())}
	}
	n := 0
	if t := at.GetToken(); t != nil && t.Position != nil {
		n = t.Position.Line
	}
	message := at.GetMessage()
	if strings.Contains(message, `'	'`) {
		message = "indent with spaces, not with tabs"
	}
	return &Problem{File: path, Line: n, Message: clip(message)}
}

// LineOf returns the line that a node stands in; 0 where that is not known.
func LineOf(n ast.Node) int {
	if n == nil {
		return 0
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// PairsOf returns the keys of a section with their values; nil if a node is not one. A
// section of one key has a node of its own kind.
func PairsOf(n ast.Node) []*ast.MappingValueNode {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}
	}
	return nil
}

// mapping reads the contents of a section. The empty section is the whole file.
func (r *reader) mapping(section string, n ast.Node) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	case *ast.NullNode: // everything in it is commented out
		return
	default:
		if section == "" {
			r.private(LineOf(n), "settings are expected: write key: value", "%s stands where settings are expected: write key: value", DescribeNode(n))
			return
		}
		r.private(LineOf(n), section+" is a section: write its keys under it", "%s is a section, and %s stands there: write its keys under it (%s)", section, DescribeNode(n), strings.Join(r.under(section), ", "))
		return
	}
	for _, pair := range PairsOf(n) {
		if r.full() {
			r.problems.more++
			continue
		}
		name, wrong := KeyOf(pair.Key)
		if wrong != "" {
			r.problem(LineOf(pair.Key), "%s", wrong)
			continue
		}
		key := name
		if section != "" {
			key = section + "." + name
		}
		switch at := LineOf(pair.Key); {
		case key == RulesKey: // the rules for calls are read where they are applied
		case key == EnvironmentsKey:
			if before := r.seen[key]; before > 0 {
				r.problem(at, "%s is already set, in line %d", key, before)
				continue
			}
			r.seen[key] = at
			r.environments(pair.Value)
		case r.settings[key] != nil:
			if before := r.seen[key]; before > 0 {
				r.problem(at, "%s is already set, in line %d", key, before)
				continue
			}
			r.seen[key] = at
			r.leaf(r.settings[key], at, pair.Value)
		case len(r.under(key)) > 0:
			r.mapping(key, pair.Value)
		default:
			r.problem(at, "%s", r.unknown(key))
		}
	}
}

// KeyOf returns the name of a key, or what is wrong with it.
func KeyOf(n ast.MapKeyNode) (name, wrong string) {
	switch k := n.(type) {
	case *ast.StringNode:
		return k.Value, ""
	case *ast.MergeKeyNode:
		return "", "merging (<<) is not supported: write the settings out"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MappingKeyNode:
		return "", DescribeNode(n) + " is not supported as a key"
	}
	if t := n.GetToken(); t != nil {
		return t.Value, "" // 1: or true: is an unknown key like others
	}
	return "", "this is not supported as a key"
}

func (r *reader) leaf(s *setting, at int, n ast.Node) {
	if n != nil && LineOf(n) > 0 {
		at = LineOf(n)
	}
	fail := func(format string, args ...any) {
		r.private(at, s.key+": its value is not accepted", s.key+": "+format, args...)
	}
	var err error
	switch v := n.(type) {
	case nil, *ast.NullNode:
		fail("it has no value: write one, or remove the key")
		return
	case *ast.SequenceNode:
		lister, ok := s.value.(lister)
		if !ok {
			fail("a list stands where %s is expected", article(s.value.kind()))
			return
		}
		parts := make([]string, 0, len(v.Values))
		for _, item := range v.Values {
			text, f := scalarText(item)
			if sections, ok := s.value.(sectionLister); ok && PairsOf(item) != nil {
				if text, err = sections.section(PairsOf(item)); err != nil {
					at = max(at, LineOf(item))
					fail("%v", err)
					return
				}
				f = asText
			}
			if f != asText {
				at = max(at, LineOf(item))
				fail("%s stands in the list: write a string, in quotes", DescribeNode(item))
				return
			}
			parts = append(parts, text)
		}
		err = lister.setList(parts, r.at)
	default:
		text, f := scalarText(n)
		switch takes := s.value.takes(); {
		case f == 0:
			fail("%s stands where %s is expected", DescribeNode(n), article(s.value.kind()))
			return
		case takes == asList:
			fail("%s stands where a list is expected: write [%s]", DescribeNode(n), clip(text))
			return
		case f&takes == 0:
			fail("%s stands where %s is expected: %s", DescribeNode(n), article(s.value.kind()), mendForm(takes, text))
			return
		case text == "":
			fail("it is empty: write a value, or remove the key")
			return
		}
		err = s.assign(text, r.at)
	}
	if err != nil {
		fail("%v", err)
		return
	}
	s.origin = Origin{Layer: LayerFile, Name: r.path, Line: at}
}

func mendForm(takes form, text string) string {
	switch takes {
	case asTruth:
		return "write true or false"
	case asText:
		return "write it in quotes, " + quote(text)
	case asNumber, asNumber | asText:
		return "write the number without quotes"
	}
	return "write " + takes.String()
}

// scalarText returns the value of a scalar as written, and its form.
func scalarText(n ast.Node) (string, form) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, asText
	case *ast.LiteralNode:
		if v.Value == nil {
			return "", asText
		}
		return v.Value.Value, asText
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, asNumber
	case *ast.BoolNode:
		if v.Value {
			return "true", asTruth
		}
		return "false", asTruth
	}
	return "", 0
}

// DescribeNode names a node for an error message.
func DescribeNode(n ast.Node) string {
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.StringNode, *ast.LiteralNode:
		text, _ := scalarText(v)
		return "the string " + quote(text)
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + clip(n.GetToken().Value)
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section"
	case *ast.AnchorNode:
		return "an anchor (&)"
	case *ast.AliasNode:
		return "an alias (*)"
	case *ast.TagNode:
		return "a tag (!)"
	case *ast.MappingKeyNode:
		return "a complex key (?)"
	}
	return "something that is not a plain value"
}

// under lists the next parts of the keys below a section.
func (l *loader) under(section string) []string {
	var out []string
	for _, key := range l.keys {
		rest, ok := strings.CutPrefix(key, section+".")
		if section == "" {
			rest, ok = key, true
		}
		if !ok {
			continue
		}
		rest, _, _ = strings.Cut(rest, ".")
		if !slices.Contains(out, rest) {
			out = append(out, rest)
		}
	}
	return out
}

func article(kind string) string {
	if kind == "true or false" {
		return kind
	}
	return "a " + kind
}

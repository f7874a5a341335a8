package environment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	// maxHeader bounds a script's header, and so how deep its values can nest.
	maxHeader = 64 << 10
	// maxHeaderPackages bounds what one header can ask for.
	maxHeaderPackages = 1000
)

var (
	headerStart = lazyregexp.New(`\A# /// ([a-zA-Z0-9-]+)\z`)
	// specifierForm is that of PEP 440, for releases of Python.
	specifierForm = lazyregexp.New(`\A\s*` + clause + `(\s*,\s*` + clause + `)*\s*,?\s*\z`)
)

// clause is one comparison of a specifier.
const clause = `(===|==|~=|!=|<=|>=|<|>)\s*[0-9]{1,5}(\.[0-9]{1,5}){0,3}(\.\*)?((a|b|rc)[0-9]+)?`

// header is the content of a script's block "script".
type header struct {
	text  string
	first int // the line number of its first line in the script
}

// Inline returns what the header of a script asks for (PEP 723), or nil if it has
// none. Tables of tools and unknown keys are ignored, and so is a block that is not
// closed, as the specification requires.
func Inline(code string) (*Definition, error) {
	h, err := findHeader(code)
	if h == nil || err != nil {
		return nil, err
	}
	d, line, err := h.decode()
	if err != nil {
		return nil, fmt.Errorf("line %d: the script's header: %w", line, err)
	}
	return d, nil
}

// findHeader finds the block as the specification's regular expression does: it
// ends with the last closing line of the comment that begins with its first line.
func findHeader(code string) (*header, error) {
	if !strings.Contains(code, "# /// script") {
		return nil, nil
	}
	// Python reads a file with any of these as the end of a line.
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(code), "\n")
	var found *header
	for i := 0; i < len(lines); i++ {
		start := headerStart().FindStringSubmatch(lines[i])
		if start == nil {
			continue
		}
		end, content := 0, i+1
		for j := content; j < len(lines) && (lines[j] == "#" || strings.HasPrefix(lines[j], "# ")); j++ {
			if lines[j] == "# ///" && j > content {
				end = j
			}
		}
		if end == 0 {
			continue
		}
		if start[1] == "script" {
			if found != nil {
				return nil, fmt.Errorf("line %d: the script has a second header ('# /// script'; the first is on line %d): remove one", i+1, found.first-1)
			}
			var text strings.Builder
			for _, line := range lines[content:end] {
				text.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " ") + "\n")
			}
			if text.Len() > maxHeader {
				return nil, fmt.Errorf("line %d: the script's header is longer than %d KiB", i+1, maxHeader>>10)
			}
			found = &header{text.String(), content + 1}
		}
		i = end
	}
	return found, nil
}

// decode reads the block. line is that of an error.
func (h *header) decode() (_ *Definition, line int, err error) {
	var fields map[string]any
	if _, err := toml.Decode(h.text, &fields); err != nil {
		line := h.first
		var at toml.ParseError
		if errors.As(err, &at) {
			line, err = line+max(at.Position.Line-1, 0), errors.New(at.Message)
		}
		return nil, line, err
	}
	d := &Definition{}
	list, ok := fields["dependencies"].([]any)
	if _, given := fields["dependencies"]; given && !ok {
		return nil, h.line("dependencies"), errors.New(`dependencies is not a list: write it as in ["requests", "rich>=13"]`)
	}
	if len(list) > maxHeaderPackages {
		return nil, h.line("dependencies"), fmt.Errorf("%d dependencies are more than %d", len(list), maxHeaderPackages)
	}
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return nil, h.line("dependencies"), fmt.Errorf(`dependencies: %.100s is not text: write it in quotes, as in ["requests", "rich>=13"]`, fmt.Sprint(item))
		}
		r, err := build.ParseRequirement(text)
		if err != nil {
			return nil, h.line(text), fmt.Errorf("dependencies: %w", err)
		}
		d.Packages = append(d.Packages, r)
	}
	if value, given := fields["requires-python"]; given {
		text, ok := value.(string)
		if d.RequiresPython = strings.TrimSpace(text); !ok || !specifierForm().MatchString(text) {
			return nil, h.line("requires-python"), fmt.Errorf(`requires-python: %.100s is not a version specifier: write it as in ">=3.11" or ">=3.11,<4"`, fmt.Sprint(value))
		}
	}
	return d, 0, nil
}

// line returns the number of the first line that contains a string.
func (h *header) line(text string) int {
	before, _, ok := strings.Cut(h.text, text)
	if !ok {
		return h.first
	}
	return h.first + strings.Count(before, "\n")
}

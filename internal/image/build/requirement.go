package build

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// A Requirement is a line of a requirements file that identifies a package by
// name: "numpy", "pandas[excel]>=2,<3; python_version >= '3.9'", with hashes if
// need be.
type Requirement string

// Name returns the normalized name that it begins with.
func (r Requirement) Name() string {
	name, _, _ := strings.Cut(string(r), " ")
	if end := strings.IndexAny(name, "[(<>=!~;@"); end >= 0 {
		name = name[:end]
	}
	return Normalized(name)
}

var (
	requirementForm = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\s*(\[[A-Za-z0-9._, -]*\])?\s*(\(?(===|==|~=|!=|<=|>=|<|>)[^;@/\\$]*\)?)?\s*(;[^@/\\$]*)?$`)
	optionForm      = lazyregexp.New(`\s-`)
	hashForm        = lazyregexp.New(`\s--hash[= ](sha256|sha384|sha512):[0-9a-f]+`)
)

// ParseRequirement reads a requirement. It refuses everything that could make
// pip build a package, and so run its code: paths, URLs, version control,
// options. It also refuses variables, which pip would replace with values from
// the environment.
func ParseRequirement(text string) (Requirement, error) {
	text = strings.TrimSpace(text)
	plain := strings.TrimSpace(hashForm().ReplaceAllString(text, ""))
	control := strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' || r == 0x7f || r == 0x85 || r == '\u2028' || r == '\u2029'
	})
	if !requirementForm().MatchString(plain) || optionForm().MatchString(plain) || control || len(text) > 128<<10 || len(plain) > 8<<10 {
		return "", fmt.Errorf("%q does not name a package: write NAME, NAME==1.2 or NAME>=1,<2 (paths, URLs and options are not allowed, because building anything but a wheel runs code here)", text)
	}
	return Requirement(text), nil
}

// maxRequirements bounds a requirements file.
const maxRequirements = 1 << 20

// ReadRequirements reads a requirements file.
func ReadRequirements(r io.Reader) ([]Requirement, error) {
	var out []Requirement
	s := bufio.NewScanner(io.LimitReader(r, maxRequirements))
	s.Buffer(nil, maxRequirements)
	line, number := "", 0
	for s.Scan() {
		number++
		text, joined := strings.CutSuffix(s.Text(), `\`)
		line += text
		if joined {
			line += " "
			continue
		}
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line != "" {
			req, err := ParseRequirement(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			out = append(out, req)
		}
		line = ""
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if strings.TrimSpace(line) != "" {
		return nil, errors.New("its last line ends with a backslash")
	}
	return out, nil
}

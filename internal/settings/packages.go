package settings

import (
	"errors"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// PackagesKey is the key of the setting that decides on packages that code adds.
const PackagesKey = "policy.packages"

// The words of policy.packages; everything else there is a requirement.
const (
	NoPackages  = "none"
	AnyPackage  = "any"
	AskPackages = "ask"
)

// IsPackagesWord reports whether a word of policy.packages is not a requirement.
func IsPackagesWord(word string) bool {
	return word == NoPackages || word == AnyPackage || word == AskPackages
}

func declarePackages(p *Policy) []*setting {
	return []*setting{
		{key: PackagesKey, value: oneOrMore{list(&p.Packages, isAllowedPackage, "`none`, `any`, `ask`, or packages such as `pandas` or `pandas>=2`")}, initial: NoPackages, strength: narrows(&p.Packages),
			help: "Packages that agents' code may add to its sandbox with those that they need. A list allows those in it; with the word `ask` in it, a person is asked about all others. A name that differs by one letter from a listed one is refused in any case. Variables and flags can only take away from what the file allows. Packages of environments are not concerned."},
	}
}

// oneOrMore is a list that may be written as a word where it has only one. What begins
// with an operator belongs to the part before: "pandas>=2,<3".
type oneOrMore struct{ *words }

func (oneOrMore) takes() form { return asList | asText }

func (v oneOrMore) set(text string, at place) error { return v.setList(strings.Split(text, ","), at) }

func (v oneOrMore) setList(parts []string, at place) error {
	var whole []string
	for _, p := range parts {
		p = strings.TrimSpace(p)
		if n := len(whole) - 1; n >= 0 && p != "" && strings.ContainsRune("=~!<>", rune(p[0])) {
			whole[n] += "," + p
		} else {
			whole = append(whole, p)
		}
	}
	if len(whole) > 1 && slices.Contains(whole, NoPackages) {
		return errors.New("`none` stands alone")
	}
	return v.words.setList(whole, at)
}

// narrows returns a strength that is less than that of the file where a list allows
// what the file's does not.
func narrows(field *[]string) func() int64 {
	var file []string
	read := false
	return func() int64 {
		if !read {
			file, read = slices.Clone(*field), true
			return 0
		}
		names := slices.DeleteFunc(slices.Clone(file), IsPackagesWord)
		for _, word := range *field {
			ofAny := slices.Contains(file, AnyPackage) && (word == AskPackages || len(names) == 0)
			if word != NoPackages && !slices.Contains(file, word) && !ofAny {
				return -1
			}
		}
		if !slices.Contains(*field, AnyPackage) && !slices.Contains(*field, AskPackages) {
			return 0
		}
		for _, word := range names { // others that resemble it are refused
			if !slices.Contains(*field, word) {
				return -1
			}
		}
		return 0
	}
}

var allowedForm = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?((===|==|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]+(,(==|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]+)*)?$`)

// isAllowedPackage reports whether word is a name, with versions or without: a form that
// pip takes as a constraint.
func isAllowedPackage(word string) bool { return len(word) <= 256 && allowedForm().MatchString(word) }

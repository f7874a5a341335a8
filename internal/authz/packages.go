package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/terminal"
)

// InstallPackages adds Python packages to a running sandbox. The packages that
// these need come with them.
type InstallPackages struct {
	Requirements []string // as code asks for them: "pandas>=2"
	// Adds are the packages that would be added, with their versions; nil: that is not
	// known yet.
	Adds []string
}

// Names are the packages that code asks for, without what else it says of them.
func (a InstallPackages) Names() string {
	names := make([]string, len(a.Requirements))
	for i, r := range a.Requirements {
		names[i] = packageName(r)
	}
	return strings.Join(names, " ")
}

func (a InstallPackages) describe() (action, item string) {
	item = a.Names()
	if a.Adds != nil {
		item = strings.Join(a.Adds, ", ")
	}
	return "install_packages", clip(item, 500) // each record has it
}

func (a InstallPackages) on() (*Server, bool) { return nil, false }
func (a InstallPackages) arguments() json.RawMessage {
	return inJSON(struct {
		Packages []string `json:"packages"`
		Adds     []string `json:"adds,omitempty"`
	}{a.Requirements, a.Adds})
}

// PackagesKey is the setting behind Config.Packages.
const PackagesKey = "policy.packages"

// The words in Config.Packages; everything else there is a requirement.
const (
	AnyPackage = "any"
	AskPackage = "ask" // a person, about what is not listed
)

// popular are names that others are made to resemble: packages of five letters or
// more among the most downloaded of PyPI (hugovk.github.io/top-pypi-packages).
var popular = strings.Fields(`aiohttp beautifulsoup4 boto3 botocore certifi charset-normalizer click cryptography
	django fastapi flask httpx jinja2 jsonschema markupsafe matplotlib numpy openai openpyxl packaging pandas
	pillow plotly polars protobuf pyarrow pydantic pytest python-dateutil pyyaml requests scikit-learn scipy
	seaborn setuptools sqlalchemy tensorflow torch transformers typing-extensions urllib3 virtualenv wheel`)

func (c *Config) packages() []string {
	if c.Packages == nil {
		return nil
	}
	return c.Packages()
}

// byPackages applies policy.packages. A name that differs by one letter from one
// that the user listed is refused whatever else holds; one that differs so from a
// popular name is never installed unasked.
func byPackages(c *Config, _ Principal, a Action) (Effect, error) {
	install, ok := a.(InstallPackages)
	if !ok {
		return Allow, nil
	}
	if len(install.Requirements) == 0 {
		return Deny, errors.New("no package was named, so nothing is allowed")
	}
	policy := c.packages()
	var listed []string
	for _, word := range policy {
		if word != AnyPackage && word != AskPackage {
			listed = append(listed, packageName(word))
		}
	}
	var unlisted, resemble []string
	for _, r := range install.Requirements {
		name := packageName(r)
		shown := clip(name, 100)
		if name == "" {
			return Deny, fmt.Errorf("%q does not name a package", clip(r, 100))
		}
		if slices.Contains(listed, name) {
			continue
		}
		if like := lookalike(name, listed); like != "" {
			return Deny, fmt.Errorf("package %s is refused: it is not in policy.packages, and its name is one letter away from %s, which is. Only the user can list it there", shown, like)
		}
		like := lookalike(name, popular)
		if slices.Contains(popular, name) {
			like = ""
		}
		switch {
		case slices.Contains(policy, AnyPackage) && like == "":
		case slices.Contains(policy, AnyPackage), slices.Contains(policy, AskPackage):
			if like != "" {
				resemble = append(resemble, fmt.Sprintf("package %s has a name that is one letter away from that of the popular %s", shown, like))
			} else {
				unlisted = append(unlisted, shown)
			}
		default:
			return Deny, c.notAllowed(policy, name)
		}
	}
	if len(unlisted) > 0 {
		resemble = append(resemble, "policy.packages asks about what it does not list: "+strings.Join(unlisted, ", "))
	}
	if len(resemble) == 0 {
		return Allow, nil
	}
	return Ask, errors.New(strings.Join(resemble, "; "))
}

// notAllowed says what the user can do for a package.
func (c *Config) notAllowed(policy []string, name string) error {
	word := terminal.ShellWord(name)
	if c.PackagesBy != nil {
		if by := c.PackagesBy(); by != "" {
			return fmt.Errorf("policy.packages does not allow package %s: %s restricts it. The user can change that where Sallyport is started, or add the package to an environment: sallyport env add data -p %s", clip(name, 100), by, word)
		}
	}
	return fmt.Errorf("policy.packages does not allow package %s. The user can allow it: %s ('ask' in place of names asks the user each time), or add it to an environment: sallyport env add data -p %s",
		clip(name, 100), allowing(policy, name), word)
}

// allowing returns the command with which the user allows one package more.
func allowing(listed []string, name string) string {
	command := "sallyport config set " + PackagesKey
	for _, word := range append(slices.Clone(listed), name) {
		command += " " + terminal.ShellWord(word)
	}
	return command
}

// Packages says which packages code may add: AnyPackage, AskPackage, "listed", or
// nothing for none; and which are listed.
func (g *Gate) Packages() (rule string, listed []string) {
	if g == nil {
		return "", nil
	}
	policy := g.config.packages()
	listed = slices.DeleteFunc(slices.Clone(policy), func(word string) bool { return word == AnyPackage || word == AskPackage })
	switch {
	case len(policy) == 0:
		return "", nil
	case slices.Contains(policy, AnyPackage):
		return AnyPackage, listed
	case slices.Contains(policy, AskPackage):
		return AskPackage, listed
	}
	return "listed", listed
}

// packageName returns the name in a requirement, as indexes compare names; empty
// if it has none.
func packageName(requirement string) string {
	text := strings.TrimSpace(requirement)
	end := strings.IndexFunc(text, func(r rune) bool { return r > 0x7f || !plain(byte(r)) })
	if end >= 0 {
		if !strings.ContainsRune(" \t[(<>=!~;", rune(text[end])) {
			return "" // or a letter that looks like another
		}
		text = text[:end]
	}
	if len(text) > 100 || strings.HasPrefix(text, "-") { // an option
		return ""
	}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return strings.Join(words, "-")
}

// lookalike returns the name that another resembles, or nothing.
func lookalike(name string, names []string) string {
	for _, known := range names {
		if known != name && oneEdit(name, known) {
			return known
		}
	}
	return ""
}

// oneEdit reports whether a becomes b when one letter is added, dropped or
// replaced, or two that follow each other change places.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 1:
		return a[i:] == b[i+1:]
	case 0:
		if i >= len(a)-1 || a[i+1:] == b[i+1:] {
			return true
		}
		return a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	}
	return false
}

package environment

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/image/build"
)

// example is the one of the specification.
const example = `# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "requests<3",
#   "rich",
# ]
# ///

import requests
from rich.pretty import pprint

resp = requests.get("https://peps.python.org/api/peps.json")
data = resp.json()
pprint([(k, v["title"]) for k, v in data.items()][:10])
`

func TestInline(t *testing.T) {
	const header = "# /// script\n# dependencies = [\"a\"]\n# ///\n"
	for _, tt := range []struct {
		name, code, packages, python string
		none                         bool
	}{
		{name: "the specification's example", code: example, packages: "requests<3 rich", python: ">=3.11"},
		{name: "CRLF", code: strings.ReplaceAll(example, "\n", "\r\n"), packages: "requests<3 rich", python: ">=3.11"},
		{name: "CR", code: strings.ReplaceAll(example, "\n", "\r"), packages: "requests<3 rich", python: ">=3.11"},
		{name: "after other lines", code: "#!/usr/bin/env -S uv run --script\n\"\"\"doc\"\"\"\nimport x\n" + header, packages: "a"},
		{name: "ends the file without a newline", code: strings.TrimSuffix(header, "\n"), packages: "a"},
		{name: "empty dependencies", code: "# /// script\n# dependencies = []\n# ///\n"},
		{name: "an empty line of a comment", code: "# /// script\n#\n# ///\n"},
		{name: "tools and unknown keys", code: "# /// script\n# dependencies = ['a']\n# other = 1\n# [tool.uv]\n# index-url = \"https://example.com\"\n# [tool.black]\n# line-length = 88\n# ///\n", packages: "a"},
		{name: "a closing line within, as the specification shows", code: "# /// embedded-csharp\n# /// <summary>\n# /// text\n# ///\n# /// </summary>\n# public class MyClass { }\n# ///\n" + "\n" + header, packages: "a"},
		{name: "another type", code: strings.Replace(header, "script", "other", 1), none: true},
		{name: "no header", code: "print(1)\n", none: true},
		{name: "not closed", code: "# /// script\n# dependencies = ['a']\nprint(1)\n", none: true},
		{name: "an empty line within", code: "# /// script\n\n# dependencies = ['a']\n# ///\n", none: true},
		{name: "no space after #", code: "# /// script\n#dependencies = ['a']\n# ///\n", none: true},
		{name: "nothing within", code: "# /// script\n# ///\n", none: true},
		{name: "space after the type", code: "# /// script \n# a = 1\n# ///\n", none: true},
		{name: "indented", code: "  # /// script\n  # a = 1\n  # ///\n", none: true},
		{name: "extras and markers", code: "# /// script\n# dependencies = [\"a[b]>=1 ; python_version > '3'\"]\n# requires-python = \"~=3.11, !=3.12.*\"\n# ///\n", packages: "a[b]>=1 ; python_version > '3'", python: "~=3.11, !=3.12.*"},
	} {
		d, err := Inline(tt.code)
		if err != nil || (d == nil) != tt.none {
			t.Errorf("%s: got %+v (%v), want none: %t", tt.name, d, err, tt.none)
			continue
		}
		if d == nil {
			continue
		}
		var packages []string
		for _, r := range d.Packages {
			packages = append(packages, string(r))
		}
		if got := strings.Join(packages, " "); got != tt.packages || d.RequiresPython != tt.python {
			t.Errorf("%s: got %q, Python %q, want %q, Python %q", tt.name, got, d.RequiresPython, tt.packages, tt.python)
		}
	}
}

func TestInlineErrors(t *testing.T) {
	block := func(lines ...string) string {
		return "import x\n# /// script\n# " + strings.Join(lines, "\n# ") + "\n# ///\n"
	}
	for _, tt := range []struct{ name, code, want string }{
		{"two blocks", block("a = 1") + "\n" + block("a = 1"), "line 7: the script has a second header ('# /// script'; the first is on line 2)"},
		{"a start within a block", block("a = 1", "/// script", "b = 2"), "line 4: "},
		{"bad TOML", block("a = 1", "dependencies = ["), "line 4: "},
		{"a string", block("", "dependencies = \"a\""), "line 4: the script's header: dependencies is not a list: write"},
		{"numbers", block("dependencies = [1]"), "line 3: the script's header: dependencies: 1 is not text: write it in quotes"},
		{"a version as a number", block("dependencies = []", "requires-python = 3.11"), "line 4: the script's header: requires-python: 3.11 is not a version specifier"},
		{"a bad version", block("requires-python = \"three\""), "line 3: the script's header: requires-python: three is not a version specifier"},
		{"a URL", block("dependencies = [", "  \"a\",", "  \"b @ https://example.com/b.whl\",", "]"), "line 5: the script's header: dependencies: \"b @ https://example.com/b.whl\" does not name a package"},
		{"a path", block("dependencies = [\"./b\"]"), "does not name a package"},
		{"an option", block("dependencies = [\"--index-url=https://example.com\"]"), "does not name a package"},
		{"too long", block("# " + strings.Repeat("x", maxHeader)), "line 2: the script's header is longer than 64 KiB"},
		{"too many", block("dependencies = [" + strings.Repeat("\"a\", ", maxHeaderPackages+1) + "]"), "1001 dependencies are more than 1000"},
		{"deep", block("a = " + strings.Repeat("[", 60_000)), "line 3: "},
	} {
		d, err := Inline(tt.code)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: got %+v, %.1000v, want %q", tt.name, d, err, tt.want)
		}
	}
}

// FuzzInline: any script is read or refused, and what it asks for names packages.
func FuzzInline(f *testing.F) {
	for _, s := range []string{example, "# /// script\n# ///\n# ///", "# /// script\n# dependencies = [\"a @ b\"]\n# ///", "# /// x\n#\n# ///\r\n# /// script\r#\r# ///"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, code string) {
		d, err := Inline(code)
		if err != nil && (d != nil || !strings.HasPrefix(err.Error(), "line ")) {
			t.Errorf("got %+v and %q, want an error with a line", d, err)
		}
		if d == nil {
			return
		}
		for _, r := range d.Packages {
			if again, err := build.ParseRequirement(string(r)); err != nil || again != r {
				t.Errorf("got %q (%v), want a requirement", r, err)
			}
		}
		if strings.ContainsAny(d.RequiresPython, "\n/;@") {
			t.Errorf("got %q, want a specifier", d.RequiresPython)
		}
	})
}

package upstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

func TestAliases(t *testing.T) {
	for name, want := range map[string]string{
		"github": "github", "GitHub-Server": "github_server", "a.b c//d": "a_b_c_d", "3d": "_3d", "--": "_", "": "server",
		"日本": "_", "über": "_ber", "K8s": "k8s", "İx": "i_x", "_a_": "_a_", "class": "class", "a__b": "a__b",
	} {
		if got := ServerAlias(name); got != want {
			t.Errorf("ServerAlias(%q) = %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"list-things": "list_things", "getUserProfile": "getuserprofile", "3d.render": "_3d_render", "class": "class_", "Class": "class_",
		"": "tool", "!": "_", "None": "none", "async": "async_", "match": "match",
	} {
		if got := ToolAlias(name); got != want {
			t.Errorf("ToolAlias(%q) = %q, want %q", name, got, want)
		}
	}
	for _, test := range []struct{ names, want string }{
		{"a-b a_b a.b", "a_b a_b_2 a_b_3"},
		{"a-b a_b a_b_2 a.b", "a_b a_b_2 a_b_2_2 a_b_3"},
		{"a_2 a a. a!", "a_2 a a_ a__2"},
		{"class Class class_", "class_ class__2 class__3"},
	} {
		if got := strings.Join(ToolAliases(strings.Fields(test.names)), " "); got != test.want {
			t.Errorf("%s: %s, want %s", test.names, got, test.want)
		}
	}
	same := make([]string, 20_000)
	aliases := ToolAliases(same)
	if aliases[0] != "tool" || aliases[19_999] != "tool_20000" {
		t.Error(aliases[0], aliases[19_999])
	}
}

// Nobody takes the alias of one of the user's servers by a name that is alike.
func TestAliasesOfStrangers(t *testing.T) {
	defs := []Definition{
		{Name: "GIT-HUB", Offer: definitions.Offered, Source: definitions.NameProject},
		{Name: "GIT.HUB", Source: definitions.NameRequested},
		{Name: "Git-hub", Source: definitions.NameProject},
		{Name: "git-hub"},
	}
	want := []string{"git_hub_4", "git_hub_3", "git_hub_2", "git_hub"}
	if got := ServerAliases(defs); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// In a program that runs, names keep what they have.
	m := NewManager(defs[3:], Options{})
	defer func() { _ = m.Close(t.Context()) }()
	m.Replace([]Definition{{Name: "Git-Hub"}, {Name: "git-hub"}}, 0)
	if got := m.Definitions(); got[0].Alias != "git_hub_2" || got[1].Alias != "git_hub" {
		t.Errorf("%+v", got)
	}
}

func TestLastLines(t *testing.T) {
	long := strings.Repeat("é", 3000)
	for in, want := range map[string]string{
		"":                               "",
		"\n\na\r\nb\n\n":                 "a\nb",
		"1\n2\n3\n4\n":                   "2\n3\n4",
		"\x1b[1;31mred\x1b[0m \x07x\x00": "red x",
		"\x1bMup \u009b31mx":             "up 31mx",
		"\xffa":                          "\uFFFDa",
		long + "\nend":                   "end",
	} {
		if got := lastLines([]byte(in), 3, 100); got != want {
			t.Errorf("%.30q: %q, want %q", in, got, want)
		}
	}
	if got := lastLines([]byte(long), 3, 101); len(got) > 101 || !strings.HasSuffix(got, "é") {
		t.Errorf("%q", got)
	}
}

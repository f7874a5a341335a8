package manual

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/tiktoken-go/tokenizer"
)

var update = flag.Bool("update", false, "write the committed skill anew")

// committed is the skill as `npx skills add` finds it in the repository.
const committed = "../../skills/sallyport/SKILL.md"

func TestCommittedSkillIsCurrent(t *testing.T) {
	if *update {
		if err := os.WriteFile(committed, []byte(Skill()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Skill() {
		t.Errorf("%s differs from manual.md: run go test ./internal/manual -update", committed)
	}
}

// TestFrontMatter: the limits are those of the Agent Skills format.
func TestFrontMatter(t *testing.T) {
	parts := strings.SplitN(Skill(), "---\n", 3)
	if len(parts) != 3 || parts[0] != "" {
		t.Fatalf("got no front matter: %.200q", Skill())
	}
	var front struct {
		Name, Description, License, Compatibility string
		Metadata                                  map[string]string
	}
	if err := yaml.UnmarshalWithOptions([]byte(parts[1]), &front, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(front.Name) || len(front.Name) > 64 {
		t.Errorf("got the name %q, want at most 64 of a to z, 0 to 9 and -", front.Name)
	}
	if n := len(front.Description); n == 0 || n > 1024 {
		t.Errorf("got a description of %d characters, want 1 to 1024", n)
	}
	if n := len(front.Compatibility); n == 0 || n > 500 {
		t.Errorf("got %d characters of compatibility, want 1 to 500", n)
	}
	if front.License != "Apache-2.0" || front.Metadata["checksum"] == "" {
		t.Errorf("got %+v", front)
	}
}

func TestUnchanged(t *testing.T) {
	skill := Skill()
	for _, test := range []struct {
		name, text string
		want       bool
	}{
		{"as written", skill, true},
		{"a word more", skill + "x", false},
		{"a changed description", strings.Replace(skill, "description: ", "description: My ", 1), false},
		{"no checksum", checksum().ReplaceAllString(skill, ""), false},
		{"another checksum", checksum().ReplaceAllString(skill, "  checksum: 0123456789abcdef\n"), false},
		{"empty", "", false},
		{"of another version", edited(strings.Replace(skill, "## Files", "## All files", 1)), true},
	} {
		if got := Unchanged(test.text); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}

// edited returns a skill with the checksum of what it has now.
func edited(skill string) string {
	at := checksum().FindStringIndex(skill)
	return skill[:at[0]] + "  checksum: " + sum(skill[:at[0]]+skill[at[1]:]) + "\n" + skill[at[1]:]
}

// TestAffordable: each form is short enough to be read whole.
func TestAffordable(t *testing.T) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, text string
		most       int
	}{
		{"SKILL.md", Skill(), 1500},
		{"the resource", Resource("", ""), 800},
		{"the prompt", Prompt(""), 800},
		{"the description of the skill", description, 80},
	} {
		n, err := codec.Count(test.text)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d tokens", test.name, n)
		if n > test.most {
			t.Errorf("%s: got %d tokens, want at most %d", test.name, n, test.most)
		}
	}
}

// TestTeaches: what an agent must know is there, and every heading has text.
func TestTeaches(t *testing.T) {
	for _, want := range []string{
		"discovered_servers(", "search_tool_docs(", "query_tool_docs(", "servers=[", "await mcp_", "asyncio.gather(", "runtime.MCPError",
		"save_memory(", "load_memory(", "list_memories(", "update_memory(", "save_tool(", "from user_tools import", `"session"`,
		"runtime.output(-1)", "status: running", `{"code": ""}`, "/workspace", "cwd", "backend", "capability_summary()", "Hint:",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the manual lacks %q", want)
		}
	}
	if prompt := Prompt(" count the files "); !strings.HasSuffix(prompt, "\n## Task\n\ncount the files\n") {
		t.Errorf("got a prompt that ends with %q, want the task", prompt[len(prompt)-40:])
	}
}

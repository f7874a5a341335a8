package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/manual"
)

// TestPrompt: the manual is a prompt in every revision, with and without a task.
func TestPrompt(t *testing.T) {
	for _, version := range revisions {
		c := serve(t, Config{})
		self := c.open(version)
		if !strings.Contains(string(self), `"prompts":{}`) {
			t.Errorf("%s: got capabilities without prompts: %s", version, self)
		}
		var list struct {
			Prompts []struct {
				Name, Title, Description string
				Arguments                []struct {
					Name     string
					Required bool
				}
			}
		}
		if err := json.Unmarshal(c.ask(version, "1", "prompts/list", ""), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Prompts) != 1 || list.Prompts[0].Name != "guide" || list.Prompts[0].Description == "" ||
			len(list.Prompts[0].Arguments) != 1 || list.Prompts[0].Arguments[0].Name != "task" || list.Prompts[0].Arguments[0].Required {
			t.Errorf("%s: got prompts %+v, want guide with an optional task", version, list.Prompts)
		}
		for arguments, want := range map[string]string{
			``:                                       manual.Prompt(""),
			`,"arguments":{}`:                        manual.Prompt(""),
			`,"arguments":{"task":"count my files"}`: manual.Prompt("count my files"),
		} {
			var got struct {
				Messages []struct {
					Role    string
					Content struct{ Type, Text string }
				}
			}
			if err := json.Unmarshal(c.ask(version, "2", "prompts/get", `"name":"guide"`+arguments), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Messages) != 1 || got.Messages[0].Role != "user" || got.Messages[0].Content.Type != "text" || got.Messages[0].Content.Text != want {
				t.Errorf("%s, %s: got %+v, want one message of the user: %.80q…", version, arguments, got, want)
			}
		}
	}
}

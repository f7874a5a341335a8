package approval

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func asked() Question {
	return Question{
		ID: "k3vq", Revision: 40, Action: "call_tool", Server: "files", Item: "write", Waiting: 40, Deadline: time.Now().Add(time.Minute),
		Choices: []Choice{Waiting, ThisCall, Next, ThisTool, Session, No, NoTool},
	}
}

func TestParse(t *testing.T) {
	q := asked()
	for _, tt := range []struct {
		action, content string
		want            string // the answer; empty: none
		wrong           bool
	}{
		{"accept", `{"answer":"waiting"}`, "waiting", false},
		{"accept", `{"answer":"tool","words":"no matter"}`, "tool", false},
		{"accept", `{"answer":"next","count":40,"vary":"path, content"}`, "next 40 [path content]", false},
		{"accept", `{"answer":"no","words":"not these"}`, "no not these", false},
		{"decline", `{"answer":"waiting"}`, "no", false},
		{"decline", `null`, "no", false},
		{"cancel", `{"answer":"waiting"}`, "", false},
		{"accept", `{"answer":"always"}`, "", true}, // it was not offered
		{"accept", `{"answer":"next"}`, "", true},
		{"accept", `{"answer":"next","count":1.5}`, "", true},
		{"accept", `{"answer":"next","count":-1}`, "", true},
		{"accept", `{"answer":true}`, "", true},
		{"accept", `{}`, "", true},
		{"accept", `null`, "", true},
		{"ACCEPT", `{"answer":"waiting"}`, "", true},
		{"", `{"answer":"waiting"}`, "", true},
	} {
		var content map[string]any
		if err := json.Unmarshal([]byte(tt.content), &content); err != nil {
			t.Fatal(err)
		}
		a, answered, err := q.Parse(tt.action, content)
		got := ""
		if answered {
			got = string(a.Choice)
			if a.Count > 0 {
				got += fmt.Sprintf(" %d %v", a.Count, a.Vary)
			}
			if a.Words != "" {
				got += " " + a.Words
			}
		}
		if got != tt.want || err != nil != tt.wrong {
			t.Errorf("%s %s: got %q, %v, want %q", tt.action, tt.content, got, err, tt.want)
		}
	}
}

// FuzzParse: nothing but an accepted form with a choice that was offered says yes.
func FuzzParse(f *testing.F) {
	f.Add("accept", []byte(`{"answer":"next","count":3,"vary":"a,b"}`))
	f.Add("decline", []byte(`{}`))
	f.Fuzz(func(t *testing.T, action string, raw []byte) {
		var content map[string]any
		if json.Unmarshal(raw, &content) != nil {
			return
		}
		q := asked()
		a, answered, err := q.Parse(action, content)
		if !answered {
			return
		}
		yes := a.Choice != No && a.Choice != NoTool
		if err != nil || a.ID != q.ID || a.Revision != q.Revision || !slices.Contains(q.Choices, a.Choice) || yes && action != "accept" || a.Count < 0 || a.Count > maxCount {
			t.Errorf("%s %s: got %+v, %v", action, raw, a, err)
		}
	})
}

// FuzzShown: arguments of code are shown on one line without hidden characters,
// and whatever is shown can be asked and answered.
func FuzzShown(f *testing.F) {
	f.Add([]byte(`{"path":"/a","content":"\u202e\n"}`))
	f.Add([]byte("{\"a\":\"\x1b[2J\"}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		action := writeFile("", "")
		action.Arguments = raw
		s, err := subjectOf(t.Context(), action)
		if err != nil {
			return
		}
		for _, a := range s.arguments {
			if got := shown(a.value); strings.ContainsAny(got, "\n\r\x1b\u202e") {
				t.Errorf("%q: shown as %q", a.value, got)
			}
		}
	})
}

// TestForm: the form of a question has all that it shows, and a question that is
// too long for one has none.
func TestForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{Rules: &rules{}})
		a.writes(3)
		q := a.one()
		for _, legacy := range []bool{true, false} {
			form, ok := q.Form(legacy)
			if !ok || form.Mode != "form" {
				t.Fatalf("got %+v, %v", form, ok)
			}
			for _, want := range []string{"filesystem.write_file, 3 calls, 5m0s left", `each with content = "x"`, `2  "/2"`, "policy.d/x.yaml:\nfilesystem write_file"} {
				if !strings.Contains(form.Message, want) {
					t.Errorf("the form lacks %q:\n%s", want, form.Message)
				}
			}
			var schema struct {
				Properties map[string]struct {
					Enum  []string
					OneOf []struct{ Const string }
				}
				Required []string
			}
			if err := json.Unmarshal(form.Schema, &schema); err != nil || !slices.Equal(schema.Required, []string{"answer"}) {
				t.Fatalf("got %s, %v", form.Schema, err)
			}
			words := schema.Properties["answer"].Enum
			for _, one := range schema.Properties["answer"].OneOf {
				words = append(words, one.Const)
			}
			if want := names(q.Choices); !slices.Equal(words, want) {
				t.Errorf("got %q, want %q", words, want)
			}
		}
		a.say(Answer{Choice: No})
		a.call(t.Context(), writeFile("/", strings.Repeat("x", maxForm)))
		q = a.one()
		if _, ok := q.Form(true); ok {
			t.Error("a form cannot show all of it")
		}
		a.say(Answer{Choice: No})
	})
}

package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sallyport/sallyport/internal/authz"
)

// The tests of this file show how far an answer reaches: to the calls, the rule and
// the server that the person saw.

func write(arguments string) authz.CallTool {
	c := writeFile("", "")
	c.Arguments = json.RawMessage(arguments)
	return c
}

// TestAlike: the calls of "the next N alike" have the arguments of the question.
func TestAlike(t *testing.T) {
	for _, tt := range []struct {
		name  string
		seen  []string
		vary  []string
		later map[string]string // a call: y, or . for one that is asked about
	}{
		{"one call", []string{`{"path":"a","content":"x"}`}, []string{"path"}, map[string]string{
			`{"path":"b","content":"x"}`:                            "y",
			`{"content":"x","path":"b"}`:                            "y",
			`{"content":"x"}`:                                       "y", // it is free
			`{"path":"b","content":"y"}`:                            ".",
			`{"path":"b"}`:                                          ".",
			`{"path":"b","content":"x","mode":"delete everything"}`: ".",
			`{"path":"b","content":"x","force":true,"mode":"w"}`:    ".",
			`{"path":"b","content":"x","p\u0430th":"c"}`:            ".",
			`{"path":"b","content":"x","":null}`:                    ".",
			`{"path":"b","Content":"x"}`:                            ".",
			``:                                                      ".",
		}},
		{"a name that one call had", []string{`{"path":"a"}`, `{"path":"a","mode":"r"}`}, []string{"mode"}, map[string]string{
			`{"path":"a"}`:              "y",
			`{"path":"a","mode":"w"}`:   "y",
			`{"path":"a","force":true}`: ".",
			`{"path":"b","mode":"w"}`:   ".",
		}},
		{"two calls", []string{`{"path":"a","content":"x","n":1}`, `{"path":"b","content":"x"}`}, nil, map[string]string{
			`{"path":"c","content":"x","n":7}`:          "y",
			`{"path":"c","content":"x"}`:                "y",
			`{"content":"x"}`:                           ".", // both had a path
			`{"path":"c","content":"x","m":7}`:          ".",
			`{"path":"c","content":"x","n":7,"m":null}`: ".",
		}},
		{"none", []string{``}, nil, map[string]string{``: "y", `{}`: "y", `{"all":true}`: "."}},
	} {
		for call, want := range tt.later {
			t.Run(tt.name+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAsker(t, Config{})
					ctx, cancel := context.WithCancel(t.Context())
					for _, c := range tt.seen {
						a.call(ctx, write(c))
					}
					a.say(Answer{Choice: Next, Count: 9, Vary: tt.vary})
					a.answers = nil
					a.call(ctx, write(call))
					a.want(want)
					cancel()
					synctest.Wait()
				})
			})
		}
	}
}

// ask has code make a call about which a rule asks.
func (a *asker) ask(ctx context.Context, action authz.Action, v authz.Verdict) {
	before := a.why
	defer func() { a.why = before }()
	a.why = authz.Decision{Effect: authz.Ask, Rule: authz.RuleTools, Reason: errors.New("asks"), Verdict: v}
	a.call(ctx, action)
}

// TestOneRule: a question and its answer are of one rule, which is shown.
func TestOneRule(t *testing.T) {
	small, big := authz.Verdict{Rule: "small", ID: "1"}, authz.Verdict{Rule: "big", ID: "2", Because: "above 100"}
	edited := authz.Verdict{Rule: "small", ID: "3"}
	for _, choice := range []Choice{Waiting, ThisTool, Session, NoTool} {
		t.Run(string(choice), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsker(t, Config{})
				ctx, cancel := context.WithCancel(t.Context())
				a.ask(ctx, write(`{"amount":5}`), small)
				a.ask(ctx, write(`{"amount":100000}`), big)
				list := a.List()
				if len(list) != 2 || list[0].Rule != "small" || list[1].Rule != "big" || list[1].Because != "above 100" {
					t.Fatalf("got %+v, want a question for each rule", list)
				}
				if _, err := a.Answer(Answer{ID: list[0].ID, Revision: 1, Choice: choice}); err != nil {
					t.Fatal(err)
				}
				said := "y"
				if choice == NoTool {
					said = "n"
				}
				a.want(said + ".")
				a.ask(ctx, write(`{"amount":7}`), small)
				a.ask(ctx, write(`{"amount":7}`), edited) // the same name says something else now
				a.ask(ctx, write(`{"amount":200000}`), big)
				if choice == Waiting {
					said = "y..."
				} else {
					said += "." + said + "."
				}
				a.want(said + ".")
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestOneServer: consent belongs to what is started, not to its name.
func TestOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		on := func(identity, command string) authz.CallTool {
			c := writeFile("/", "x")
			c.Server = &authz.Server{Name: "db", Started: command, Identify: func(context.Context) (string, error) {
				if identity == "" {
					return "", errors.New("there is no such server")
				}
				return identity, nil
			}}
			return c
		}
		a.call(ctx, on("1", "db --staging"))
		if q := a.one(); q.Started != "db --staging" || !strings.Contains(q.Text(), "server    db --staging\n") {
			t.Errorf("got %s, want what is started", q.Text())
		}
		a.call(ctx, on("2", "db --production"))
		list := a.List()
		if len(list) != 2 {
			t.Fatalf("got %d questions, want one for each server", len(list))
		}
		if _, err := a.Answer(Answer{ID: list[0].ID, Revision: 1, Choice: Session}); err != nil {
			t.Fatal(err)
		}
		a.want("y.")
		if o := <-a.answers[0]; o.Server != "1" {
			t.Errorf("got an answer about server %q, want %q", o.Server, "1")
		}
		a.answers = nil
		a.call(ctx, on("1", "db --staging"))
		a.call(ctx, on("2", "db --production"))
		a.call(ctx, on("", "gone"))
		a.want("y.e")
		cancel()
		synctest.Wait()
	})
}

// TestOneName: consent belongs to a name as it is written.
func TestOneName(t *testing.T) {
	names := []string{"db_prod", "db-prod", "db prod", "db.prod", "DB_Prod", "ｄｂ_ｐｒｏｄ", "db_prod ", "é", "e\u0301"}
	for i, own := range names {
		synctest.Test(t, func(t *testing.T) {
			a := newAsker(t, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			of := func(server, tool string) authz.CallTool {
				return authz.CallTool{Server: &authz.Server{Name: server}, Tool: tool}
			}
			a.call(ctx, of("s", own))
			a.say(Answer{Choice: Session})
			a.call(ctx, of(own, "x"))
			a.say(Answer{Choice: Session})
			a.call(ctx, authz.GetPrompt{Server: &authz.Server{Name: "s"}, Prompt: own})
			a.say(Answer{Choice: Session})
			a.want("yyy")
			cancel()
			for j, name := range names {
				a.answers = nil
				ctx, cancel := context.WithCancel(t.Context())
				a.call(ctx, of("s", name))
				a.call(ctx, of(name, "x"))
				a.call(ctx, authz.GetPrompt{Server: &authz.Server{Name: "s"}, Prompt: name})
				if want := map[bool]string{true: "yyy", false: "..."}[i == j]; a.tally() != want {
					t.Errorf("after %q, %q: got %s, want %s", own, name, a.tally(), want)
				}
				cancel()
				synctest.Wait()
			}
		})
	}
}

// TestFullQuestion: what finds no room in a question, and what waits in the
// sandbox, is counted in it, and one answer covers what is alike.
func TestFullQuestion(t *testing.T) {
	large := strings.Repeat("x", maxShown/3)
	for _, tt := range []struct {
		choice       Choice
		count        int
		waits, later string // of five calls that wait, and of five later ones
	}{
		{Waiting, 0, "yyy.y", "yyy.."}, // three behind the five
		{No, 0, "nnn.n", "nnn.."},
		{ThisCall, 0, "y....", "....."},
		{Next, 5, "yyy.y", "y...."},
		{ThisTool, 0, "yyyyy", "yyyyy"},
	} {
		t.Run(string(tt.choice), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsker(t, Config{})
				ctx, cancel := context.WithCancel(t.Context())
				behind := 3
				for i, content := range []string{large, large, large, "other", large} {
					c := writeFile(fmt.Sprint("/", i), content)
					c.Behind = func() int { return behind }
					a.call(ctx, c)
				}
				q := a.one()
				if q.Waiting != 2 || q.More != 6 || len(q.Calls) != 2 {
					t.Fatalf("got %d calls of which %d are shown, and %d more; want 2 and 6", q.Waiting, len(q.Calls), q.More)
				}
				if text := q.Text(); !strings.Contains(text, ": filesystem.write_file, 2 calls and 6 more, ") || !strings.Contains(text, "6 calls more may follow") {
					t.Errorf("got %.200s, want the six", text)
				}
				behind = 50 // what a person does not know an answer does not cover
				a.one()
				a.say(Answer{Choice: tt.choice, Count: tt.count})
				a.want(tt.waits)
				a.answers = nil
				for i := range 5 {
					a.call(ctx, writeFile(fmt.Sprint("/more/", i), large))
				}
				a.want(tt.later)
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestRoom: when calls leave a full question, those that found no room are shown,
// at a new revision.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{})
		first, leave := context.WithCancel(t.Context())
		large := strings.Repeat("x", maxShown-100)
		a.call(first, writeFile("/1", large))
		a.call(t.Context(), writeFile("/2", large))
		before := a.one()
		leave()
		synctest.Wait()
		if now := a.one(); now.Waiting != 1 || now.More != 0 || now.Revision <= before.Revision || !strings.Contains(now.Text(), `"/2"`) {
			t.Errorf("got revision %d after %d with %d calls and %d more, want the second one shown", now.Revision, before.Revision, now.Waiting, now.More)
		}
		if out, err := a.Answer(Answer{ID: before.ID, Revision: before.Revision, Choice: Waiting}); err == nil {
			t.Errorf("got %+v, want no answer to a call that was not shown", out)
		}
		a.say(Answer{Choice: Waiting})
		a.want("ey")
	})
}

// TestNames: names are whole, and cannot be taken for anything else.
func TestNames(t *testing.T) {
	long := strings.Repeat("n", 700)
	for name, want := range map[string]string{
		"path":              "path",
		"$ref":              `"$ref"`,
		"dry_run = true, x": `"dry_run = true, x"`,
		"true":              `"true"`,
		"12":                `"12"`,
		"":                  `""`,
		"a b":               `"a b"`,
		"größe":             `"größe"`,
		"p\u0430th":         `"p\u{430}th"`,
		"a\u200bb":          `"a\u{200b}b"`,
		"a\nb":              `"a\nb"`,
		long:                long,
	} {
		if got := word(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

package configfile_test

import (
	"errors"
	"testing"

	"github.com/sallyport/sallyport/internal/configfile"
)

const rules = `# mine
policy:
  profile: careful # asks
  tools:
    # the first
    - server: a   # one
      tool: x
      because: |
        # no comment
        text

    # the second
    - {server: b, action: deny}
  # the end
limits:
  - c
`

func TestLists(t *testing.T) {
	item := []string{"server: n", "action: ask"}
	insert := func(index int) func(string) ([]byte, error) {
		return func(in string) ([]byte, error) {
			return configfile.Insert([]byte(in), "policy.tools", index, item)
		}
	}
	move := func(in string) ([]byte, error) { return configfile.Move([]byte(in), "policy.tools", 1, 0) }
	word := func(index int, word string) func(string) ([]byte, error) {
		return func(in string) ([]byte, error) {
			return configfile.ReplaceWord([]byte(in), "policy.tools", index, "action", word)
		}
	}
	const head, first = "# mine\npolicy:\n  profile: careful # asks\n  tools:\n", "    # the first\n    - server: a   # one\n      tool: x\n      because: |\n        # no comment\n        text\n"
	const second, tail = "    # the second\n    - {server: b, action: deny}\n", "  # the end\nlimits:\n  - c\n"
	const added = "    - server: n\n      action: ask\n"
	for _, c := range []struct {
		name   string
		change func(string) ([]byte, error)
		in     string
		want   string // empty: by hand
	}{
		{"first", insert(0), rules, head + added + first + "\n" + second + tail},
		{"between", insert(1), rules, head + first + "\n" + added + second + tail},
		{"last", insert(2), rules, head + first + "\n" + second + added + tail},
		{"no file", insert(0), "", "policy:\n  tools:\n" + added},
		{"comments alone", insert(0), "# none\n", "# none\npolicy:\n  tools:\n" + added},
		{"no section", insert(0), "a: 1", "a: 1\npolicy:\n  tools:\n" + added},
		{"a section", insert(0), "policy:\n  # p\n  profile: open\nb: 2\n", "policy:\n  # p\n  profile: open\n  tools:\n" + added + "b: 2\n"},
		{"a section that ends with a section", insert(0), "policy:\n  require:\n    cpu: hard\n", "policy:\n  tools:\n" + added + "  require:\n    cpu: hard\n"},
		{"an empty section", insert(0), "policy:\nb: 2\n", "policy:\n  tools:\n" + added + "b: 2\n"},
		{"an empty list", insert(0), "policy:\n  tools:\nb: 2\n", "policy:\n  tools:\n" + added + "b: 2\n"},
		{"a key with a dot", insert(0), "policy.profile: open\n", "policy.profile: open\npolicy:\n  tools:\n" + added},
		{"dashes below the key", insert(1), "policy.tools:\n- server: a\n- server: b\n", "policy.tools:\n- server: a\n- server: n\n  action: ask\n- server: b\n"},
		{"a section on one line", insert(0), "policy: {profile: open}\n", "policy: {profile: open, tools: [{server: n, action: ask}]}\n"},
		{"line ends of Windows", insert(0), "policy:\r\n  tools:\r\n    - server: a\r\n", "policy:\r\n  tools:\r\n    - server: n\r\n      action: ask\r\n    - server: a\r\n"},
		{"a list on one line", insert(0), "policy: {tools: [{server: a}]}\n", ""},
		{"no list", insert(0), "policy: {tools: x}\n", ""},
		{"moved", move, rules, head + second + first + "\n" + tail},
		{"moved without a last line break", move, "policy.tools:\n- a: 1\n- b: 2", "policy.tools:\n- b: 2\n- a: 1\n"},
		{"a word", word(1, "ask"), rules, head + first + "\n" + "    # the second\n    - {server: b, action: ask}\n" + tail},
		{"a word in quotes", word(0, "ask"), "policy.tools:\n- server: a\n  action: \"deny\" # no\n", "policy.tools:\n- server: a\n  action: \"ask\" # no\n"},
		{"no such word", word(0, "ask"), rules, ""},
		{"a word on the next line", word(0, "ask"), "policy.tools:\n- action:\n    deny\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.change(c.in)
			if c.want == "" && !errors.Is(err, configfile.ErrByHand) || c.want != "" && err != nil || string(got) != c.want {
				t.Errorf("got\n%s(%v), want\n%s", got, err, c.want)
			}
		})
	}
}

func FuzzInsert(f *testing.F) {
	f.Add([]byte(rules), 1)
	f.Add([]byte("policy: {tools: }"), 0)
	f.Add([]byte("policy.tools:\n- a: 1\r\n-\n  b: |\n    x\n"), 1)
	f.Add([]byte("\r\r#\r"), 1)
	f.Fuzz(func(t *testing.T, content []byte, index int) {
		if index < 0 || index > 10 {
			return
		}
		item := []string{"server: n", "action: ask"}
		after, err := configfile.Insert(content, "policy.tools", index, item)
		if err != nil {
			return
		}
		if _, err := configfile.Insert(after, "policy.tools", 0, item); err != nil && !errors.Is(err, configfile.ErrByHand) {
			t.Errorf("%q became %q, which cannot be read: %v", content, after, err)
		}
		if _, err := configfile.Move(after, "policy.tools", 0, 0); err != nil && !errors.Is(err, configfile.ErrByHand) {
			t.Errorf("%q became %q, which cannot be read: %v", content, after, err)
		}
	})
}

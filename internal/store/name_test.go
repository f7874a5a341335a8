package store

import (
	"strings"
	"testing"
)

func TestFileName(t *testing.T) {
	long := strings.Repeat("k", 1000)
	tests := []struct{ text, want string }{
		{"project_notes-2", "project_notes-2.json"},
		{"a.b", "a.b.json"},
		{"", ".json"}, // callers refuse an empty text
		{".hidden", "%2ehidden.json"},
		{"..", "%2e..json"},
		{"MyKey", "+my+key.json"},
		{"+my+key", "%2bmy%2bkey.json"},
		{"a/b\\c", "a%2fb%5cc.json"},
		{"100%", "100%25.json"},
		{"é", "%c3%a9.json"},
		{"e\u0301", "e%cc%81.json"},
		{"con", "%63on.json"},
		{"Con", "+con.json"},
		{"con.txt", "%63on.txt.json"},
		{"console", "console.json"},
		{"~", "%7e.json"},
		{"a b\x00\n", "a%20b%00%0a.json"},
	}
	for _, tt := range tests {
		got := FileName(tt.text, ".json")
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.text, got, tt.want)
		}
		if back := TextOf(got, ".json"); back != tt.text {
			t.Errorf("%q: read back as %q", tt.text, back)
		}
	}
	a, b := FileName(long+"a", ".json"), FileName(long+"b", ".json")
	if a == b || len(a) > 200 || !strings.HasPrefix(TextOf(a, ".json"), "kkkk") {
		t.Errorf("long texts: %s and %s", a, b)
	}
	// The name of a long text is no short text's.
	if name := strings.TrimSuffix(a, ".json"); FileName(name, ".json") == a {
		t.Errorf("%s stands for two texts", a)
	}
}

// FuzzFileName: every text has a name that a Dir takes, and that tells the text
// where it is short; folding the case or removing what is no ASCII changes
// nothing, so that no file system makes two names one.
func FuzzFileName(f *testing.F) {
	for _, s := range []string{"a", "A", "con", "lpt1.x", "+a", "%41", "\xff", "~", "é", strings.Repeat("Ä", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			return
		}
		name := FileName(text, ".json")
		if err := At("/x").check(name); err != nil {
			t.Fatal(err)
		}
		if len(name) > 200 || strings.ToLower(name) != name {
			t.Fatalf("%q", name)
		}
		for _, c := range []byte(name) {
			if c <= ' ' || c > '~' || strings.IndexByte(`<>:"/\|?*`, c) >= 0 {
				t.Fatalf("%q", name)
			}
		}
		if back := TextOf(name, ".json"); !strings.Contains(name, "~") && back != strings.ToValidUTF8(text, "\uFFFD") {
			t.Fatalf("%q became %q and %q", text, name, back)
		}
	})
}

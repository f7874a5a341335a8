package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPicture: the picture is XML that runs nothing and loads nothing, and shows the
// transcript it was made of, each line after the one before.
func TestPicture(t *testing.T) {
	lines := []line{{"# 1 < 2", 0}, {"$ cat a & b", time.Second}, {"    x = \"y\"", time.Minute}, {"", time.Minute}, {"12 tokens", time.Minute}}
	svg := picture("t", lines)
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok && strings.Contains("script a image use foreignObject", e.Name.Local) {
			t.Errorf("it has the element %s", e.Name.Local)
		}
	}
	if got, want := shown(svg), text(lines); got != want {
		t.Errorf("it shows %q, want %q", got, want)
	}
	rest := svg
	for _, want := range []string{
		"animation-delay:0ms\"># 1 &lt; 2<",
		`<text class="next" x="36.8" y="65" textLength="75.6" style="animation-delay:0ms">cat a`, // dim until it is typed
		"animation-delay:1600ms;animation-duration:225ms;animation-timing-function:steps(9)\">cat a &amp; b<",
		// After the command and the longest wait.
		`x="53.6" y="84" textLength="58.8" style="animation-delay:3625ms">x = &#34;y&#34;<`,
		`y="122" textLength="75.6" style="animation-delay:3625ms"><tspan class="figure">12 tokens</tspan><`,
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("there is no %s in\n%s", want, rest)
		}
		rest = after
	}
}

// TestCheck: a recording is checked against what is said now.
func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.svg")
	for _, step := range []struct{ in, want string }{{"$ a\nb\n", ""}, {"$ a\nc\n", "shows\n$ a\nb\n"}} {
		if step.want == "" {
			if err := run([]string{file, "t"}, strings.NewReader(step.in), io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		err := run([]string{"--check", file, "t"}, strings.NewReader(step.in), io.Discard)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%q: got %v, want %q", step.in, err, step.want)
		}
	}
	if err := run([]string{file}, strings.NewReader(""), io.Discard); err == nil {
		t.Error("a call without a title passes")
	}
}

// TestRecording: the README's picture is small, and the text in its place has its
// numbers.
func TestRecording(t *testing.T) {
	svg, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(svg) > 50_000 {
		t.Errorf("it has %d bytes, want at most 50,000", len(svg))
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	alternative := regexp.MustCompile(`!\[(.*?)\]\(docs/demo\.svg\)`).FindString(string(readme))
	figures := figure.FindAllString(shown(string(svg)), -1)
	if len(figures) != 2 {
		t.Fatalf("got the figures %q, want one of each way", figures)
	}
	for _, f := range figures {
		n, _, _ := strings.Cut(f, " ")
		if !regexp.MustCompile(`\b` + n + `\b`).MatchString(alternative) {
			t.Errorf("the picture has %q, which the README's text in its place lacks: %s", f, alternative)
		}
	}
}

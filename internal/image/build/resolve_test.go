package build

import (
	"errors"
	"strings"
	"testing"
)

// TestExplain: a failure of pip says what can be done, and no credentials.
func TestExplain(t *testing.T) {
	for said, want := range map[string]string{
		"ERROR: No matching distribution found for x==9":                            "x==9 has no wheel for Python 3.13 on linux_x",
		"(from versions: 1.0, 2.0)\nERROR: No matching distribution found for x==9": "in that version",
		"WARNING: Retrying ... NewConnectionError":                                  "index does not answer",
		"THESE PACKAGES DO NOT MATCH THE HASHES":                                    "another hash than the lock",
		"WARNING: The repository located at x is not a trusted or secure host":      "index without TLS",
		"OSError: No space left on device":                                          "disk is full",
		"ERROR: Wheel 'x' located at /tmp/x.whl is invalid.":                        "x is damaged in the index",
		"    buf += self._read1(self.MAX_N)\nMemoryError":                           "more memory than pip may use",
		"ERROR: ResolutionImpossible":                                               "requirements conflict",
		"anything else":                                                             "pip found no wheels for Python 3.13",
	} {
		if got := target.explain(said, "linux_x", errors.New("exit status 1")).Error(); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q in it", said, got, want)
		}
	}
	if got, want := target.explain("Collecting x", "linux_x", errors.New("signal: killed")).Error(), "ended by a signal: killed: try again"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	conflict := target.explain(`Looking in links: /home/me/wheels
ERROR: Cannot install a and b because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested a
    The user requested (constraint) a==1

To fix this you could try to:
ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/latest`, "linux_x", errors.New("exit status 1"))
	var failure *PipError
	if !errors.As(conflict, &failure) {
		t.Fatalf("got %T", conflict)
	}
	want := "no wheels were found: the requirements conflict: change or remove one of those that pip names\nCannot install a and b because these package versions have conflicting dependencies.\n" +
		"The conflict is caused by:\nThe user requested a\nThe user requested (constraint) a==1"
	if got := failure.Brief(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	missing := target.explain("ERROR: Could not find a version that satisfies the requirement nope (from versions: none)\nERROR: No matching distribution found for nope", "linux_x", errors.New("exit status 1"))
	if !errors.As(missing, &failure) || strings.Contains(failure.Brief(), "\n") {
		t.Errorf("got %q, want one line", missing)
	}
	var b strings.Builder
	var stages []string
	w := &lineWriter{w: &b, tell: func(s string) { stages = append(stages, s) }}
	for _, part := range []string{"Looking in indexes: https://user:se", "cret@example.com/simple\nCollecting numpy\n  Downloading https://u:p@example.com/a/numpy-1.0.whl (3 MB)\nat https://x/a?token=secret#sha256=1 last http://t@x/"} {
		_, _ = w.Write([]byte(part))
	}
	w.end()
	if got := b.String(); strings.Contains(got, "secret") || strings.Contains(got, "u:p") || !strings.HasSuffix(got, "http://****@x/") {
		t.Errorf("got %q, want no credentials", got)
	}
	if got, want := strings.Join(stages, ", "), "collecting numpy, downloading numpy-1.0.whl"; got != want {
		t.Errorf("stages: got %q, want %q", got, want)
	}
}

// TestPipEnviron: uv's index counts where pip's is not set.
func TestPipEnviron(t *testing.T) {
	for set, want := range map[string]string{
		"UV_DEFAULT_INDEX=https://a/simple":                   "PIP_INDEX_URL=https://a/simple",
		"UV_DEFAULT_INDEX=own=https://a/simple":               "PIP_INDEX_URL=https://a/simple",
		"UV_INDEX=x=https://a https://b":                      "PIP_EXTRA_INDEX_URL=https://a https://b",
		"UV_FIND_LINKS=/a,/b":                                 "PIP_FIND_LINKS=/a /b",
		"UV_OFFLINE=1":                                        "PIP_NO_INDEX=1",
		"PIP_INDEX_URL=https://p UV_INDEX_URL=https://a":      "PIP_RETRIES=2",
		"PIP_RETRIES=9 PIP_TIMEOUT=60 UV_INDEX_URL=https://a": "PIP_INDEX_URL=https://a",
	} {
		environ := []string{set}
		if strings.HasPrefix(set, "PIP_") {
			environ = strings.Fields(set)
		}
		got := strings.Join(pipEnviron(environ), "\n") + "\n"
		if !strings.Contains(got, "\n"+want+"\n") || strings.Contains(set, "https://p") && strings.Contains(got, "PIP_INDEX_URL=https://a") {
			t.Errorf("%s: got %q, want %s", set, got, want)
		}
	}
}

// FuzzReport: of pip's report only wheels with a hash are taken.
func FuzzReport(f *testing.F) {
	f.Add(`{"install":[{"download_info":{"url":"https://u:p@x/a-1.0-py3-none-any.whl?q#f","archive_info":{"hashes":{"sha256":"` + strings.Repeat("0a", 32) + `"}}},"metadata":{"name":"A","version":"1.0"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := readReport(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, w := range list {
			if !wheelName().MatchString(w.File) || len(w.SHA256) != 64 || strings.Contains(w.URL, "u:p@") {
				t.Errorf("got %+v", w)
			}
		}
	})
}

// FuzzTarget: a Python that describes itself has usable folders, and tags that are
// words.
func FuzzTarget(f *testing.F) {
	f.Add(`{"version":[3,13,1],"abi":"t","libc":"musl","libc_version":[1,2],"purelib":"/a","platlib":"/b","scripts":"/c","data":"/d","markers":{"os_name":"posix"}}`)
	f.Add(`{"version":[3,9,0],"libc":"glibc","libc_version":[2,199],"purelib":"/a/../b"}`)
	f.Fuzz(func(t *testing.T, text string) {
		target, err := ParseTarget([]byte(text))
		if err != nil {
			return
		}
		platforms, err := target.platforms()
		if err != nil {
			return
		}
		for _, tag := range append(target.abis(), platforms...) {
			if strings.ContainsAny(tag, " -/\n") || len(platforms) > 300 {
				t.Errorf("got %q, %d platforms", tag, len(platforms))
			}
		}
	})
}

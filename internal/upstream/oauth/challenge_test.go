package oauth

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadChallenge(t *testing.T) {
	const at = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
	many := strings.TrimSpace(strings.Repeat("s ", 3) + strings.Join(manyScopes(150), " "))
	for _, test := range []struct {
		name  string
		lines []string
		want  challenge
	}{
		{"nothing", nil, challenge{}},
		{"a bare scheme", []string{"Bearer"}, challenge{}},
		{"all", []string{`Bearer error="insufficient_scope", scope="a b:c", resource_metadata="` + at + `", error_description="x, y=\"z\""`}, challenge{Metadata: at, Error: "insufficient_scope", Scopes: []string{"a", "b:c"}}},
		{"another case", []string{`bEARER Scope=a, ERROR=invalid_token`}, challenge{Error: "invalid_token", Scopes: []string{"a"}}},
		{"several in one header", []string{`Basic realm="a, b", Bearer scope="a", resource_metadata="` + at + `", Digest realm="x", scope="no"`}, challenge{Metadata: at, Scopes: []string{"a"}}},
		{"several headers", []string{`Negotiate abc def`, `Basic realm="x"`, `Bearer scope="a"`, `Bearer scope="b", error="invalid_token"`}, challenge{Error: "invalid_token", Scopes: []string{"a"}}},
		{"DPoP", []string{`DPoP algs="ES256", error="use_dpop_nonce", resource_metadata="` + at + `"`}, challenge{Metadata: at, Error: "use_dpop_nonce"}},
		{"scopes of another scheme", []string{`Basic scope="a"`}, challenge{}},
		{"what scopes cannot be", []string{"Bearer scope=\"a\x01b \\\"q\\\" good back\\\\slash \u00fc good\""}, challenge{Scopes: []string{"good"}}},
		{"too many scopes", []string{`Bearer scope="` + many + `"`}, challenge{Scopes: append([]string{"s"}, manyScopes(99)...)}},
		{"a long scope", []string{`Bearer scope="` + strings.Repeat("x", 201) + ` y"`}, challenge{Scopes: []string{"y"}}},
		{"control characters", []string{"Bearer resource_metadata=\"https://mcp.example/\x1b[31m\", error=\"a\x00b\""}, challenge{}},
		{"an error with spaces", []string{`Bearer error="not a code"`}, challenge{}},
		{"a long URL", []string{`Bearer resource_metadata="https://mcp.example/` + strings.Repeat("x", maxURL) + `"`}, challenge{}},
		{"a long header", []string{`Bearer scope="` + strings.Repeat("x ", maxChallenge) + `"`}, challenge{}},
		{"an open quote", []string{`Bearer scope="a`}, challenge{}},
		{"a quote first", []string{`"`}, challenge{}},
	} {
		if diff := cmp.Diff(test.want, readChallenge(http.Header{"Www-Authenticate": test.lines})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	for nonce, want := range map[string]string{"abc-123": "abc-123", "": "", "a b": "", "a\tb": "", strings.Repeat("x", maxNonce+1): ""} {
		if got := readChallenge(http.Header{"Dpop-Nonce": {nonce}}).Nonce; got != want {
			t.Errorf("nonce %q: got %q, want %q", nonce, got, want)
		}
	}
}

// manyScopes returns n different scopes.
func manyScopes(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("scope:%d", i)
	}
	return list
}

func FuzzReadChallenge(f *testing.F) {
	for _, seed := range []string{
		`Bearer`, `Bearer scope="a b", error=x`, `Basic realm="x", Bearer resource_metadata="https://a/"`, `"`, `Bearer a=`, `DPoP algs="ES256"`,
		"Bearer scope=\"\x00\"", `Negotiate abc==`, `Bearer a="\"`, `,,,=,`,
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, line, nonce string) {
		c := readChallenge(http.Header{"Www-Authenticate": {line, line}, "Dpop-Nonce": {nonce}})
		for _, s := range append([]string{c.Metadata, c.Error, c.Nonce}, c.Scopes...) {
			checkText(t, "challenge", strings.ReplaceAll(s, "s3cret", ""))
		}
		if len(c.Scopes) > maxScopes {
			t.Errorf("got %d scopes, want at most %d", len(c.Scopes), maxScopes)
		}
	})
}

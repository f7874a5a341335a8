package oauth

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// unsigned returns a token without a good signature.
func unsigned(claims map[string]any) string {
	data, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(data) + ".c2ln"
}

func TestAccount(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/userinfo":
			fmt.Fprint(w, `{"sub":"17","preferred_username":"info"}`)
		case "/onward":
			http.Redirect(w, r, "/userinfo", http.StatusFound)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
					return
				}
			}
		default:
			fmt.Fprint(w, `[]`)
		}
	}))
	defer server.Close()
	id := func(change map[string]any) string {
		c := map[string]any{"iss": "https://as", "aud": "me", "exp": now.Add(time.Minute).Unix(), "nonce": "n", "sub": "17", "email": "ann@example.com"}
		for name, value := range change {
			if value == nil {
				delete(c, name)
			} else {
				c[name] = value
			}
		}
		return unsigned(c)
	}
	for _, tt := range []struct {
		name  string
		g     granted
		info  string // path of the userinfo endpoint
		want  string
		asked string
	}{
		{"an opaque token", granted{Access: "opaque"}, "", "", ""},
		{"an email address", granted{ID: id(nil)}, "/userinfo", "ann@example.com", ""},
		{"a user name", granted{ID: id(map[string]any{"email": nil, "preferred_username": "ann", "name": "Ann"})}, "", "ann", ""},
		{"a name", granted{ID: id(map[string]any{"email": nil, "name": "Ann"})}, "", "Ann", ""},
		{"only an identifier", granted{ID: id(map[string]any{"email": nil})}, "", "17", ""},
		{"several audiences", granted{ID: id(map[string]any{"aud": []string{"other", "me"}})}, "", "ann@example.com", ""},
		{"expired a moment ago", granted{ID: id(map[string]any{"exp": now.Add(-time.Minute).Unix()})}, "", "ann@example.com", ""},
		{"expired", granted{ID: id(map[string]any{"exp": now.Add(-time.Hour).Unix()})}, "", "", ""},
		{"no expiry", granted{ID: id(map[string]any{"exp": nil})}, "", "", ""},
		{"another issuer", granted{ID: id(map[string]any{"iss": "https://evil"})}, "", "", ""},
		{"another audience", granted{ID: id(map[string]any{"aud": "other"})}, "", "", ""},
		{"another nonce", granted{ID: id(map[string]any{"nonce": "other"})}, "", "", ""},
		{"no nonce", granted{ID: id(map[string]any{"nonce": nil})}, "", "", ""},
		{"claims of other types", granted{ID: id(map[string]any{"email": []int{1}})}, "", "", ""},
		{"an access token", granted{Access: unsigned(map[string]any{"sub": "17", "name": "Ann"})}, "/userinfo", "Ann", ""},
		{"an access token's identifier", granted{Access: unsigned(map[string]any{"sub": "17"})}, "", "17", ""},
		{"userinfo", granted{Access: "opaque", ID: id(map[string]any{"email": nil})}, "/userinfo", "info", "/userinfo Bearer opaque"},
		{"userinfo of another", granted{Access: "opaque", ID: id(map[string]any{"email": nil, "sub": "18"})}, "/userinfo", "18", "/userinfo Bearer opaque"},
		{"userinfo with a bound token", granted{Access: "opaque", Type: "DPoP"}, "/userinfo", "", ""},
		{"userinfo elsewhere", granted{Access: "opaque"}, "https://evil.example/userinfo", "", ""},
		{"userinfo that redirects", granted{Access: "opaque"}, "/onward", "", "/onward Bearer opaque"},
		{"userinfo without an end", granted{Access: "opaque"}, "/endless", "", "/endless Bearer opaque"},
		{"userinfo of another form", granted{Access: "opaque"}, "/list", "", "/list Bearer opaque"},
		{"controls", granted{ID: id(map[string]any{"email": "a\x1b[31mn\nn\u202e"})}, "", `a\u{1b}[31mn n\u{202e}`, ""},
		{"length", granted{ID: id(map[string]any{"email": strings.Repeat("ä", 5000)})}, "", strings.Repeat("ä", maxText-1) + "…", ""},
	} {
		asked = nil
		info := tt.info
		if strings.HasPrefix(info, "/") {
			info = server.URL + info
		}
		v := visit{
			client:    server.Client(),
			authority: &authority{Issuer: "https://as", UserInfo: info},
			party:     &party{ID: "me", Token: server.URL + "/token"},
			nonce:     "n",
		}
		if got := v.account(t.Context(), &tt.g, []string{"openid"}, now); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if got := strings.Join(asked, ", "); got != tt.asked {
			t.Errorf("%s: asked %q, want %q", tt.name, got, tt.asked)
		}
	}
	v := visit{client: server.Client(), authority: &authority{UserInfo: server.URL + "/userinfo"}, party: &party{Token: server.URL}}
	if got := v.account(t.Context(), &granted{Access: "opaque"}, []string{"read"}, now); got != "" {
		t.Errorf("without openid: %q, want nothing", got)
	}
}

func FuzzAccount(f *testing.F) {
	f.Add(unsigned(map[string]any{"sub": "17", "aud": []string{"me"}, "exp": 1.5}))
	f.Add("a.b.c")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		v := visit{authority: &authority{}, party: &party{}}
		got := v.account(t.Context(), &granted{ID: token, Access: token}, nil, time.Now())
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxText || strings.ContainsAny(got, "\x1b\n") {
			t.Errorf("%q became %q", token, got)
		}
	})
}

package definitions

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestOAuth(t *testing.T) {
	for entry, want := range map[string]OAuth{
		`{}`:               {},
		`{"oauth": true}`:  {},
		`{"oauth": false}`: {Off: true},
		`{"oauth": {"clientId": "c", "callbackPort": 8085}}`: {ID: "c", RedirectURL: "http://localhost:8085/callback"},
		`{"oauth": {"clientId": "c", "clientSecret": "s3cret", "scopes": ["a", "b:c"], "issuer": "https://as"}}`: {
			ID: "c", Secret: "s3cret", Scopes: []string{"a", "b:c"}, Issuer: "https://as"},
		`{"oauth": {"scopes": "a b", "redirectUrl": "http://127.0.0.1:9/x", "grant": "authorization_code"}}`: {
			Scopes: []string{"a", "b"}, RedirectURL: "http://127.0.0.1:9/x"},
		`{"oauth": {"grant": "client_credentials", "clientId": "c", "privateKey": "pem-text", "algorithm": "ES256"}}`: {
			Grant: "client_credentials", ID: "c", Key: "pem-text", Algorithm: "ES256"},
		`{"oauth": {"grant": "workload", "assertion": "jwt-text"}}`: {Grant: "workload", Assertion: "jwt-text"},
		`{"oauth": {"grant": "enterprise", "idp": {"issuer": "https://idp", "clientId": "i", "clientSecret": "idp-s3cret"}}}`: {
			Grant: "enterprise", IdP: "https://idp", IdPID: "i", IdPSecret: "idp-s3cret"},
		`{"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "s3cret"}}`: {ID: "c", Secret: "s3cret"},
	} {
		entry = strings.Replace(strings.Replace(entry, "{}", `{"url": "https://h/mcp"}`, 1), `{"oauth"`, `{"url": "https://h/mcp", "oauth"`, 1)
		entry = strings.Replace(entry, `{"auth"`, `{"url": "https://h/mcp", "auth"`, 1)
		d, err := Parse("x", []byte(entry), Options{}, true)
		if err != nil {
			t.Errorf("%s: %v", entry, err)
			continue
		}
		if got := d.Remote().OAuth; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", entry, struct{ OAuth }{got}, want)
		}
		for _, secret := range want.secret() {
			if shown := d.Redact("it said " + secret); secret != "" && strings.Contains(shown, secret) {
				t.Errorf("%s: shown: %s", entry, shown)
			}
		}
		if shown := fmt.Sprintf("%v %+v %#v", d, *d.Remote(), *d.Remote()); strings.Contains(shown, "s3cret") {
			t.Errorf("%s: printed: %s", entry, shown)
		}
	}
	d, err := Parse("x", []byte(`{"url": "https://h/mcp", "oauth": {"clientId": "c", "privateKey": "${file:/k.pem}"}}`), Options{}, true)
	if err == nil {
		d, err = d.Resolve(t.Context(), func(_ context.Context, kind, name string) (string, error) { return kind + name + "-s3cret\n", nil })
	}
	if err != nil || d.Remote().OAuth.Key != "file/k.pem-s3cret" || strings.Contains(d.Redact("file/k.pem-s3cret"), "s3cret") {
		t.Errorf("a key in a file: got %v, %v", d.Redact("file/k.pem-s3cret"), err)
	}
	for oauth, want := range map[string]string{
		`1`:                                     "false or an object",
		`"x"`:                                   "false or an object",
		`{"clientId": 1}`:                       "oauth.clientId must be a string",
		`{"callbackPort": 0}`:                   "must be a port",
		`{"callbackPort": 70000}`:               "must be a port",
		`{"redirectUrl": "https://evil/x"}`:     "address on this machine",
		`{"redirectUrl": "http://127.0.0.1/x"}`: "address on this machine",
		`{"redirectUrl": "http://localhost.evil.example:1/x"}`: "address on this machine",
		`{"scopes": ["a b"]}`:                "list of at most",
		`{"scopes": ["a\"b"]}`:               "list of at most",
		`{"grant": "password"}`:              "must be one of",
		`{"grant": "client_credentials"}`:    "needs clientId",
		`{"grant": "workload"}`:              "needs assertion",
		`{"grant": "enterprise"}`:            "needs idp",
		`{"clientSecret": "x"}`:              "need clientId",
		`{"idp": {"issuer": "https://idp"}}`: "idp is for the grant enterprise",
		`{"idp": "https://idp"}`:             "must be an object",
	} {
		_, err := Parse("x", []byte(`{"url": "https://h/mcp", "oauth": `+oauth+`}`), Options{}, true)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", oauth, err, want)
		}
	}
}

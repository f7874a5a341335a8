package oauth

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeGranted(t *testing.T) {
	sent := time.Unix(1e9, 0)
	for _, tt := range []struct {
		name, body string
		status     int
		proven     bool
		want       *granted
		err        string
		hostile    bool
	}{
		{name: "the least", body: `{"access_token":"a","token_type":"Bearer"}`, want: &granted{Access: "a", Type: typeBearer}},
		{name: "everything", body: `{"access_token":"a","token_type":"bearer","expires_in":60,"refresh_token":"r","id_token":"i.d","scope":"x y"}`,
			want: &granted{Access: "a", Type: typeBearer, Refresh: "r", ID: "i.d", Scopes: []string{"x", "y"}, Expires: sent.Add(time.Minute)}},
		{name: "seconds in a string", body: `{"access_token":"a","expires_in":"60"}`, want: &granted{Access: "a", Type: typeBearer, Expires: sent.Add(time.Minute)}},
		{name: "a negative life", body: `{"access_token":"a","expires_in":-5}`, want: &granted{Access: "a", Type: typeBearer}},
		{name: "an endless life", body: `{"access_token":"a","expires_in":1e300}`, want: &granted{Access: "a", Type: typeBearer}},
		{name: "a life that is no number", body: `{"access_token":"a","expires_in":{"x":1}}`, want: &granted{Access: "a", Type: typeBearer}},
		{name: "no scope granted", body: `{"access_token":"a","scope":""}`, want: &granted{Access: "a", Type: typeBearer, Scopes: []string{}}},
		{name: "a bound token", body: `{"access_token":"a","token_type":"dpop"}`, proven: true, want: &granted{Access: "a", Type: typeDPoP}},
		{name: "an unbound one after a proof", body: `{"access_token":"a","token_type":"Bearer"}`, proven: true, want: &granted{Access: "a", Type: typeBearer}},
		{name: "a bound one without a proof", body: `{"access_token":"a","token_type":"DPoP"}`, err: `type "DPoP"`, hostile: true},
		{name: "another type", body: `{"access_token":"a","token_type":"mac\n"}`, err: `type "mac"`, hostile: true},
		{name: "no token", body: `{"token_type":"Bearer"}`, err: "has no token"},
		{name: "a newline", body: `{"access_token":"a\r\nX-Evil: 1"}`, err: "other characters", hostile: true},
		{name: "a space", body: `{"access_token":"a b"}`, err: "other characters", hostile: true},
		{name: "not ASCII", body: `{"access_token":"é"}`, err: "other characters", hostile: true},
		{name: "a newline in the refresh token", body: `{"access_token":"a","refresh_token":"b\n"}`, err: "other characters", hostile: true},
		{name: "a newline in the ID token", body: `{"access_token":"a","id_token":"b\n"}`, err: "other characters", hostile: true},
		{name: "a long token", body: `{"access_token":"` + strings.Repeat("a", maxToken+1) + `"}`, err: "longer than", hostile: true},
		{name: "many scopes", body: `{"access_token":"a","scope":"` + strings.Repeat("s ", maxScopes+1) + `"}`, err: "more than 100 scopes", hostile: true},
		{name: "a long scope", body: `{"access_token":"a","scope":"` + strings.Repeat("s", maxScope+1) + `"}`, err: "not valid", hostile: true},
		{name: "a page", body: `<html>`, err: "not JSON"},
		{name: "a list", body: `[]`, err: "not JSON"},
		{name: "a number as token", body: `{"access_token":1}`, err: "not JSON"},
		{name: "an error", status: 400, body: `{"error":"invalid_grant","error_description":"used\ntwice \u001b[31m\u202e"}`, err: "invalid_grant: used twice \\u{1b}[31m\\u{202e}"},
		{name: "an error with status 200", body: `{"error":"bad_verification_code"}`, err: "bad_verification_code"},
		{name: "an error that is not one", status: 401, body: `{"error":"a\nb"}`, err: "status 401"},
		{name: "a failure", status: 503, body: `{"error":"invalid_grant"}`, err: "status 503"},
		{name: "a redirect", status: 307, err: "status 307"},
	} {
		if tt.status == 0 {
			tt.status = http.StatusOK
		}
		got, err := decodeGranted(tt.status, []byte(tt.body), sent, tt.proven)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrHostile) != tt.hostile {
			t.Errorf("%s: got error %v, want %q, hostile: %v", tt.name, err, tt.err, tt.hostile)
		}
	}
}

// TestRequest: the client authenticates itself as it is registered.
func TestRequest(t *testing.T) {
	for _, tt := range []struct {
		method     string
		user, pass string
		form       url.Values
		err        string
	}{
		{method: "none", form: url.Values{"grant_type": {"x"}, "client_id": {"us:1"}}},
		{method: "client_secret_basic", user: "us%3A1", pass: "s+%25", form: url.Values{"grant_type": {"x"}}},
		{method: "client_secret_post", form: url.Values{"grant_type": {"x"}, "client_id": {"us:1"}, "client_secret": {"s %"}}},
		{method: "tls_client_auth", err: `"tls_client_auth", which is not supported`},
	} {
		var user, pass string
		var form url.Values
		as := newAuthServer(t)
		as.before = func(w http.ResponseWriter, r *http.Request) bool {
			user, pass, _ = r.BasicAuth()
			form = r.PostForm
			answer(w, http.StatusOK, map[string]any{"access_token": "a"})
			return true
		}
		p := &party{ID: "us:1", Secret: "s %", Method: tt.method, Token: as.URL + "/token"}
		sent := url.Values{"grant_type": {"x"}}
		_, err := p.request(t.Context(), http.DefaultClient, sent)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want %q", tt.method, err, tt.err)
		}
		if diff := cmp.Diff(tt.form, form); diff != "" || user != tt.user || pass != tt.pass {
			t.Errorf("%s: got %q, %q, want %q, %q; form (-want +got):\n%s", tt.method, user, pass, tt.user, tt.pass, diff)
		}
		if len(sent) != 1 {
			t.Errorf("%s: the caller's form has become %v", tt.method, sent)
		}
	}
}

// TestRequestOfAHostileServer: neither a redirect nor a long answer is followed.
func TestRequestOfAHostileServer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		t.Errorf("the other server received %q", body)
	}))
	defer other.Close()
	for name, tt := range map[string]struct {
		before func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusPermanentRedirect)
		}, "status 308"},
		"goes on": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) }, "longer than"},
		"is cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("{"))
		}, "was cut off"},
		"says little": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be reached"},
	} {
		as := newAuthServer(t)
		as.before = func(w http.ResponseWriter, r *http.Request) bool { tt.before(w, r); return true }
		p := &party{ID: "us", Secret: "s3cret", Method: "client_secret_post", Token: as.URL + "/token?key=s3cret"}
		_, err := p.request(t.Context(), http.DefaultClient, url.Values{"refresh_token": {"s3cret"}})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("a server that %s: got %v, want an error with %q and no secret", name, err, tt.want)
		}
	}
}

func FuzzDecodeGranted(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"a","token_type":"DPoP","expires_in":60,"refresh_token":"r","id_token":"i","scope":"x y"}`), true)
	f.Add(200, []byte(`{"access_token":"a\nb","expires_in":"1e400"}`), false)
	f.Add(400, []byte(`{"error":"invalid_grant","error_description":"\ufffd\u0000"}`), false)
	sent := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, status int, body []byte, proven bool) {
		got, err := decodeGranted(status, body, sent, proven)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n\x00\x1b") || utf8.RuneCountInString(err.Error()) > 2*maxText+maxScope {
				t.Errorf("error of %q: %q", body, err)
			}
			return
		}
		for _, token := range []string{got.Access, got.Refresh, got.ID} {
			if strings.ContainsAny(token, "\r\n \x00\x7f") || len(token) > maxToken {
				t.Errorf("token of %q: %q", body, token)
			}
		}
		if got.Access == "" || len(got.Scopes) > maxScopes || got.Type == typeDPoP && !proven || !got.Expires.IsZero() && got.Expires.Before(sent) {
			t.Errorf("answer to %q: %+v", body, got)
		}
	})
}

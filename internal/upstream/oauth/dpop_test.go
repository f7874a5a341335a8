package oauth

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestBind(t *testing.T) {
	for _, test := range []struct {
		name   string
		proofs []string
		want   bool
	}{
		{"no proofs", nil, false},
		{"only others", []string{"RS256", "EdDSA", "none"}, false},
		{"ours", []string{"RS256", "ES256"}, true},
	} {
		p := &party{ProofKey: []byte("from an earlier login")}
		if err := p.bind(&authority{Proofs: test.proofs}); err != nil {
			t.Fatal(err)
		}
		if got := p.ProofKey != nil; got != test.want {
			t.Errorf("%s: got a key: %v, want %v", test.name, got, test.want)
		}
	}
	var a, b party
	for _, p := range []*party{&a, &b} {
		if err := p.bind(&authority{Proofs: []string{"ES256"}}); err != nil {
			t.Fatal(err)
		}
	}
	if string(a.ProofKey) == string(b.ProofKey) {
		t.Error("two logins have the same key")
	}
}

// useToken makes a request with the token of a record, as its Login does.
func useToken(t *testing.T, r *record, method, address, nonce string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	proof, err := r.Party.proof(method, address, r.Access, nonce)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "DPoP "+r.Access)
	req.Header.Set("DPoP", proof)
	return sendRequest(t, req)
}

func sendRequest(t *testing.T, req *http.Request) *http.Response {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res
}

func TestProofs(t *testing.T) {
	s := newStrict(t)
	s.Proofs, s.Nonces = true, true
	r, err := s.login(Client{Grant: Credentials, ID: "robot", Secret: "se:cret%"}).grant(t.Context(), challenge{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.DPoP || r.Party.ProofKey == nil || s.refused != 1 {
		t.Fatalf("got a bound token: %v, after %d demands for a nonce; want one, after one demand", r.DPoP, s.refused)
	}
	// The login is used by another process.
	stored, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	r = new(record)
	if err := json.Unmarshal(stored, r); err != nil {
		t.Fatal(err)
	}

	address := s.URL + "/mcp?cursor=1#top"
	res := useToken(t, r, http.MethodPost, address, "")
	nonce := res.Header.Get("DPoP-Nonce")
	if res.StatusCode != 401 || nonce == "" {
		t.Fatalf("got %s, want a demand for a nonce", res.Status)
	}
	for _, method := range []string{"POST", "GET", "DELETE", "POST"} {
		if res = useToken(t, r, method, address, nonce); res.StatusCode != 200 {
			t.Errorf("%s: got %s, want 200", method, res.Status)
		}
	}
	for _, test := range []struct {
		name                  string
		method, address       string // of the proof
		access, nonce, scheme string
	}{
		{"another method", "PUT", address, r.Access, nonce, "DPoP"},
		{"another path", "POST", s.URL + "/token", r.Access, nonce, "DPoP"},
		{"another host", "POST", "https://other.example/mcp", r.Access, nonce, "DPoP"},
		{"another token", "POST", address, "other", nonce, "DPoP"},
		{"no token", "POST", address, "", nonce, "DPoP"},
		{"another nonce", "POST", address, r.Access, "token-nonce", "DPoP"},
		{"as a bearer token", "POST", address, r.Access, nonce, "Bearer"},
	} {
		req := res.Request.Clone(t.Context())
		req.Body = http.NoBody
		req.Header.Set("Authorization", test.scheme+" "+r.Access)
		proof, err := r.Party.proof(test.method, test.address, test.access, test.nonce)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("DPoP", proof)
		if got := sendRequest(t, req); got.StatusCode != 401 {
			t.Errorf("a proof for %s: got %s, want 401", test.name, got.Status)
		}
	}
	again := res.Request.Clone(t.Context())
	again.Body = http.NoBody
	if got := sendRequest(t, again); got.StatusCode != 401 {
		t.Errorf("the same request again: got %s, want 401", got.Status)
	}
	thief := *r
	if err := thief.Party.bind(&authority{Proofs: []string{"ES256"}}); err != nil {
		t.Fatal(err)
	}
	if res := useToken(t, &thief, "POST", address, nonce); res.StatusCode != 401 {
		t.Errorf("the token with another key: got %s, want 401", res.Status)
	}
}

func TestProofWithoutKey(t *testing.T) {
	other, err := x509.MarshalPKCS8PrivateKey(testKeys()["P-384"])
	if err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{"none": nil, "no key": []byte("hunter2"), "another kind": other} {
		got, err := (&party{ProofKey: der}).proof("POST", "https://as.example/token", "", "")
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got the proof %q and the error %v, want one", name, got, err)
		}
	}
}

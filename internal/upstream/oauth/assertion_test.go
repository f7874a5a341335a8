package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// testKeys are one key of each kind that matters. RSA takes long to generate.
var testKeys = sync.OnceValue(func() map[string]crypto.Signer {
	keys := map[string]crypto.Signer{}
	add := func(name string, key crypto.Signer, err error) {
		if err != nil {
			panic(err)
		}
		keys[name] = key
	}
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "other P-256": elliptic.P256(), "P-384": elliptic.P384()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		add(name, key, err)
	}
	for name, bits := range map[string]int{"RSA": 2048, "short RSA": 1024} {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		add(name, key, err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	add("Ed25519", key, err)
	return keys
})

func inPEM(t testing.TB, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func pkcs8(t testing.TB, name string) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(testKeys()[name])
	return inPEM(t, "PRIVATE KEY", der, err)
}

func TestAssertion(t *testing.T) {
	sec1, err := x509.MarshalECPrivateKey(testKeys()["P-256"].(*ecdsa.PrivateKey))
	ec := inPEM(t, "EC PRIVATE KEY", sec1, err)
	pkcs1 := inPEM(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(testKeys()["RSA"].(*rsa.PrivateKey)), nil)
	for _, test := range []struct {
		name, pem, algorithm string
		key, want            string
	}{
		{"P-256", pkcs8(t, "P-256"), "", "P-256", "ES256"},
		{"P-256 with ES256", pkcs8(t, "P-256"), "ES256", "P-256", "ES256"},
		{"P-256 as SEC 1", ec, "", "P-256", "ES256"},
		{"RSA", pkcs8(t, "RSA"), "", "RSA", "RS256"},
		{"RSA with PS256", pkcs8(t, "RSA"), "PS256", "RSA", "PS256"},
		{"RSA as PKCS #1", pkcs1, "RS256", "RSA", "RS256"},
		{"Ed25519", pkcs8(t, "Ed25519"), "EdDSA", "Ed25519", "EdDSA"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &party{Issuer: "https://as.example", Token: "https://as.example/token", ID: "robot", Key: test.pem, Algorithm: test.algorithm}
			var ids []string
			for range 2 {
				form := url.Values{}
				if err := p.assertion(form); err != nil {
					t.Fatal(err)
				}
				token := form.Get("client_assertion")
				if want := "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"; form.Get("client_assertion_type") != want || len(form) != 2 {
					t.Errorf("got the form %v, want the type %s", form, want)
				}
				var claims jwt.RegisteredClaims
				_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return testKeys()[test.key].Public(), nil },
					jwt.WithValidMethods([]string{test.want}), jwt.WithAudience("https://as.example"), jwt.WithIssuer("robot"),
					jwt.WithSubject("robot"), jwt.WithExpirationRequired(), jwt.WithIssuedAt())
				if err != nil {
					t.Fatalf("the assertion %s: %v", token, err)
				}
				if got := claims.ExpiresAt.Sub(claims.IssuedAt.Time); got != time.Minute {
					t.Errorf("it lasts %v, want a minute", got)
				}
				ids = append(ids, claims.ID)
			}
			if ids[0] == ids[1] || ids[0] == "" {
				t.Errorf("two assertions have the identifiers %q, want two", ids)
			}
		})
	}
}

func TestKeyThatCannotSign(t *testing.T) {
	public, err := x509.MarshalPKIXPublicKey(testKeys()["P-256"].Public())
	publicPEM := inPEM(t, "PUBLIC KEY", public, err)
	whole := pkcs8(t, "P-256")
	for _, test := range []struct{ name, pem, algorithm, want string }{
		{"nothing", "", "", "not in PEM form"},
		{"a secret", "hunter2", "", "not in PEM form"},
		{"a public key", publicPEM, "", "something else in PEM form"},
		{"an encrypted key", inPEM(t, "ENCRYPTED PRIVATE KEY", []byte("hunter2"), nil), "", "openssl pkey"},
		{"a damaged key", inPEM(t, "PRIVATE KEY", []byte("hunter2"), nil), "", "cannot be read"},
		{"a damaged EC key", inPEM(t, "EC PRIVATE KEY", []byte("hunter2"), nil), "", "cannot be read"},
		{"a damaged RSA key", inPEM(t, "RSA PRIVATE KEY", []byte("hunter2"), nil), "", "cannot be read"},
		{"half a key", whole[:len(whole)/2], "", "not in PEM form"},
		{"another curve", pkcs8(t, "P-384"), "", "use P-256"},
		{"a short key", pkcs8(t, "short RSA"), "", "2048 bits"},
		{"RS256 with P-256", whole, "RS256", "it can with ES256"},
		{"ES256 with RSA", pkcs8(t, "RSA"), "ES256", "it can with RS256 or PS256"},
		{"ES256 with Ed25519", pkcs8(t, "Ed25519"), "ES256", "it can with EdDSA"},
		{"none", whole, "none", "it can with ES256"},
		{"a symmetric algorithm", whole, "HS256", "it can with ES256"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &party{Issuer: "https://as.example", ID: "robot", Key: test.pem, Algorithm: test.algorithm}
			form := url.Values{}
			err := p.assertion(form)
			if err == nil || !strings.Contains(err.Error(), test.want) || len(form) > 0 {
				t.Fatalf("got the form %v and the error %v, want one with %q", form, err, test.want)
			}
			for line := range strings.Lines(test.pem) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") && strings.Contains(err.Error(), line) {
					t.Errorf("the error %q has the key's line %q", err, line)
				}
			}
		})
	}
}

func FuzzSigner(f *testing.F) {
	for _, name := range []string{"P-256", "P-384", "Ed25519"} {
		f.Add(pkcs8(f, name), "ES256")
	}
	f.Add("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", "")
	f.Fuzz(func(t *testing.T, text, algorithm string) {
		p := &party{Issuer: "https://as.example", ID: "robot", Key: text, Algorithm: algorithm}
		form := url.Values{}
		if err := p.assertion(form); (len(form) == 0) != (err != nil) {
			t.Errorf("got the form %v and the error %v", form, err)
		}
	})
}

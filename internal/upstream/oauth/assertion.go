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
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// assertion adds to a form a token that authenticates the client at its
// authorization server, and nowhere else (private_key_jwt, RFC 7523, section 2.2).
// Each request needs a new one.
func (p *party) assertion(form url.Values) error {
	key, method, err := signer(p.Key, p.Algorithm)
	if err != nil {
		return err
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": p.ID,
		"sub": p.ID,
		"aud": p.Issuer,
		"jti": rand.Text(),
		"iat": now.Unix(),
		"exp": now.Add(time.Minute).Unix(),
	}).SignedString(key)
	if err != nil {
		return fmt.Errorf("sign as client %s: %w", p.ID, err)
	}
	form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	form.Set("client_assertion", token)
	return nil
}

// signer reads a private key in PEM form. algorithm is one that the key can be used
// with; empty means the usual one. Errors contain nothing of the key.
func signer(text, algorithm string) (crypto.Signer, jwt.SigningMethod, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, nil, errors.New("the client's private key is not in PEM form: it must begin with -----BEGIN PRIVATE KEY-----")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, nil, errors.New("the client's private key is encrypted: decrypt it with 'openssl pkey'")
	default:
		return nil, nil, errors.New("the client's private key is something else in PEM form: it must begin with -----BEGIN PRIVATE KEY-----")
	}
	if err != nil {
		return nil, nil, errors.New("the client's private key cannot be read: check it with 'openssl pkey -check'")
	}
	s, methods, err := methodsOf(key)
	if err != nil {
		return nil, nil, err
	}
	if algorithm == "" {
		return s, methods[0], nil
	}
	var names []string
	for _, m := range methods {
		if m.Alg() == algorithm {
			return s, m, nil
		}
		names = append(names, m.Alg())
	}
	return nil, nil, fmt.Errorf("the client's private key cannot sign with %q: it can with %s", algorithm, strings.Join(names, " or "))
}

// methodsOf returns the algorithms for a key, the usual one first.
func methodsOf(key any) (crypto.Signer, []jwt.SigningMethod, error) {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if k.Curve == elliptic.P256() {
			return k, []jwt.SigningMethod{jwt.SigningMethodES256}, nil
		}
	case *rsa.PrivateKey:
		if k.N.BitLen() >= 2048 {
			return k, []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodPS256}, nil
		}
	case ed25519.PrivateKey:
		return k, []jwt.SigningMethod{jwt.SigningMethodEdDSA}, nil
	}
	return nil, nil, errors.New("the client's private key is of a kind that cannot be used: use P-256, Ed25519 or RSA with at least 2048 bits")
}

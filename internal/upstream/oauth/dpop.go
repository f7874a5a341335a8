package oauth

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// bind gives the party a new key for its tokens to be bound to, if the
// authorization server takes proofs with one of our algorithms. It is called before
// the first token of a login or grant is requested.
func (p *party) bind(a *authority) error {
	p.ProofKey = nil
	if !slices.Contains(a.Proofs, jwt.SigningMethodES256.Alg()) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	p.ProofKey, err = x509.MarshalPKCS8PrivateKey(key)
	return err
}

// proof returns the proof that the sender of a request has the party's key. address
// may have a query and a fragment, which proofs leave out. access is the bound
// token that the request is made with, and empty at the token endpoint; nonce is
// the last that the server gave, or empty. A request that is sent again needs a new
// proof.
func (p *party) proof(method, address, access, nonce string) (string, error) {
	key, err := proofKey(p.ProofKey)
	if err != nil {
		return "", err
	}
	public, err := key.PublicKey.Bytes() // 4, then X and Y with 32 bytes each
	if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address of a request cannot be read")
	}
	target := url.URL{Scheme: u.Scheme, Host: u.Host, Path: cmp.Or(u.Path, "/"), RawPath: u.RawPath}
	claims := jwt.MapClaims{
		"jti": rand.Text(),
		"htm": method,
		"htu": target.String(),
		"iat": time.Now().Unix(),
	}
	if access != "" {
		sum := sha256.Sum256([]byte(access))
		claims["ath"] = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["typ"] = "dpop+jwt"
	token.Header["jwk"] = map[string]string{
		"kty": "EC", "crv": "P-256",
		"x": base64.RawURLEncoding.EncodeToString(public[1:33]),
		"y": base64.RawURLEncoding.EncodeToString(public[33:]),
	}
	return token.SignedString(key)
}

func proofKey(der []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	k, ok := key.(*ecdsa.PrivateKey)
	if err != nil || !ok || k.Curve != elliptic.P256() {
		return nil, errors.New("the stored key of the login cannot be read: sign out and in again")
	}
	return k, nil
}

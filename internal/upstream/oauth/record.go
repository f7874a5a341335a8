package oauth

import (
	"encoding/json"
	"errors"
	"time"
)

// record is a login as it is stored, sealed.
type record struct {
	Server   string `json:"server"`
	URL      string `json:"url"`
	Resource string `json:"resource"` // the resource indicator
	Party    party  `json:"party"`

	Access  string    `json:"access"`
	Refresh string    `json:"refresh,omitempty"`
	ID      string    `json:"id,omitempty"`   // the ID token of a login at an identity provider
	DPoP    bool      `json:"dpop,omitempty"` // Access is bound to Party.ProofKey
	Expires time.Time `json:"expires,omitzero"`
	Scopes  []string  `json:"scopes,omitempty"` // granted
	Wanted  []string  `json:"wanted,omitempty"` // what the server asked for since
	Account string    `json:"account,omitempty"`
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed,omitzero"` // when Access was obtained without a person
	Grant   Grant     `json:"grant,omitempty"`
	Ended   string    `json:"ended,omitempty"` // why the user has to sign in again
}

// party is this client at one authorization server.
type party struct {
	Issuer     string `json:"issuer"`
	Token      string `json:"token"` // endpoints
	Revocation string `json:"revocation,omitempty"`
	Register   string `json:"register,omitempty"`

	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"`
	// Method is how the client authenticates itself: none, client_secret_basic,
	// client_secret_post or private_key_jwt.
	Method string `json:"method"`
	// Key and Algorithm are those of Client; they are not stored.
	Key       string `json:"-"`
	Algorithm string `json:"-"`
	// Redirect is what an ID that we registered is registered for.
	Redirect string `json:"redirect,omitempty"`
	// ProofKey is a private key (PKCS #8, DER) for DPoP (RFC 9449); nil: tokens are
	// not bound.
	ProofKey []byte `json:"proofKey,omitempty"`
	// Ends is when the secret expires; zero: never.
	Ends time.Time `json:"ends,omitzero"`
}

// decodeRecord reads a record.
func decodeRecord(data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	switch {
	case !visible(r.Access, maxToken) || r.Refresh != "" && !visible(r.Refresh, maxToken):
		return nil, errors.New("a token is not valid")
	case r.Party.Token == "":
		return nil, errors.New("there is no address for tokens")
	}
	return r, nil
}

// decodeParty reads a registration.
func decodeParty(data []byte) (*party, error) {
	p := &party{}
	err := json.Unmarshal(data, p)
	return p, err
}

// identify identifies a token, and tells nothing about it.
func identify(token string) string { return digest("token", token)[:16] }

// expired reports whether the record's token is of no use any more.
func (r *record) expired(now time.Time) bool { return !r.Expires.IsZero() && !now.Before(r.Expires) }

// fresh reports whether the record's token was renewed only now: a server that refuses
// it would refuse the next one, too. A server can take a token for expired a second
// early, which is much of a short life.
func (r *record) fresh(now time.Time) bool {
	period := renewAgain
	if !r.Expires.IsZero() {
		period = min(period, r.Expires.Sub(r.Renewed)/2)
	}
	return now.Sub(r.Renewed) < period
}

// due reports whether the record's token should be renewed: a while before it
// expires, of which a token with a short life has less.
func (r *record) due(now time.Time) bool {
	margin := renewBefore
	if !r.Renewed.IsZero() {
		margin = min(margin, r.Expires.Sub(r.Renewed)/10)
	}
	return r.expired(now.Add(margin))
}

// with returns the record with another token.
func (r *record) with(got *granted, now time.Time) *record {
	next := *r
	next.Access, next.DPoP, next.Expires, next.Renewed = got.Access, got.Type == typeDPoP, got.Expires, now
	if got.Refresh != "" {
		next.Refresh = got.Refresh
	}
	if got.Scopes != nil {
		next.Scopes = got.Scopes
	}
	return &next
}

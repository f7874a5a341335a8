package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// skew is how wrong clocks may be.
	skew = 5 * time.Minute
	// longestClaims is how much of a token or an answer about the user is read.
	longestClaims = 64 << 10
)

// account returns as whom the user has signed in, for people to read, and "" if
// that is not known. What looks like a name comes before an identifier.
//
// An ID token that comes from the token endpoint needs no check of its signature
// (OpenID Connect Core, section 3.1.3.7, item 6). An access token is not meant for
// us, but many can be read.
func (v *visit) account(ctx context.Context, g *granted, scopes []string, now time.Time) string {
	id := readClaims(g.ID)
	if !id.of(v.authority.Issuer, v.party.ID, v.nonce, now) {
		id = nil
	}
	access := readClaims(g.Access)
	for _, c := range []*claims{id, access} {
		if name := c.name(); name != "" {
			return name
		}
	}
	if slices.Contains(scopes, openID) && g.Type != typeDPoP {
		info := v.userInfo(ctx, g.Access)
		if name := info.name(); name != "" && (id == nil || id.Subject == info.Subject) {
			return name
		}
	}
	for _, c := range []*claims{id, access} {
		if c != nil && c.Subject != "" {
			return printable(c.Subject)
		}
	}
	return ""
}

// claims are what a token or an answer says about the user.
type claims struct {
	Issuer   string      `json:"iss"`
	Subject  string      `json:"sub"`
	Audience audience    `json:"aud"`
	Expires  json.Number `json:"exp"`
	Nonce    string      `json:"nonce"`

	Email     string `json:"email"`
	Preferred string `json:"preferred_username"`
	Name      string `json:"name"`
}

// audience is one string or several.
type audience []string

func (a *audience) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// readClaims reads a signed token in the compact form (RFC 7519) without checking
// it. It returns nil for others.
func readClaims(token string) *claims {
	parts := strings.Split(token, ".")
	if len(token) > longestClaims || len(parts) != 3 {
		return nil
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil
	}
	var c claims
	if json.Unmarshal(data, &c) != nil {
		return nil
	}
	return &c
}

// of reports whether this is an ID token of an issuer for a client, for the
// sign-in with this nonce, and has not expired.
func (c *claims) of(issuer, client, nonce string, now time.Time) bool {
	if c == nil || c.Issuer != issuer || !slices.Contains(c.Audience, client) || c.Nonce != nonce {
		return false
	}
	seconds, err := c.Expires.Float64()
	return err == nil && float64(now.Add(-skew).Unix()) < seconds
}

// name returns what the user is known by, and "" if there is only an identifier.
func (c *claims) name() string {
	if c == nil {
		return ""
	}
	for _, name := range []string{c.Email, c.Preferred, c.Name} {
		if name = printable(name); name != "" {
			return name
		}
	}
	return ""
}

// userInfo asks the authorization server about the user. The token is sent to its
// own origin only, where it comes from.
func (v *visit) userInfo(ctx context.Context, token string) *claims {
	address := v.authority.UserInfo
	if address == "" || !sameOrigin(address, v.party.Token) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := direct(v.client).Do(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	var c claims
	if json.NewDecoder(io.LimitReader(resp.Body, longestClaims)).Decode(&c) != nil {
		return nil
	}
	return &c
}

// sameOrigin reports whether two URLs have the same scheme, host and port.
func sameOrigin(one, other string) bool {
	a, err := url.Parse(one)
	b, berr := url.Parse(other)
	return err == nil && berr == nil && originOf(a) == originOf(b)
}

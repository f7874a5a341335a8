package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sallyport/sallyport/internal/invisible"
)

// Bounds of what authorization servers answer.
const (
	maxAnswer      = 1 << 20
	maxToken       = 16 << 10
	maxScopes      = 100
	maxScope       = 200
	maxText        = 300
	maxLifetime    = 100 * 365 * 24 * time.Hour // of a token; a longer one never expires
	requestTimeout = 30 * time.Second
)

// The types of tokens.
const (
	typeBearer = "Bearer"
	typeDPoP   = "DPoP"
)

// granted is the answer of a token endpoint.
type granted struct {
	Access, Refresh, Type, ID string // ID is an ID token of OpenID Connect
	Expires                   time.Time
	Scopes                    []string // nil: as requested
}

// refusedError is an error answer of a token endpoint or of a redirect (RFC 6749,
// section 5.2).
type refusedError struct {
	Code        string // such as invalid_grant
	Description string // printable and short
}

func (e *refusedError) Error() string {
	if e.Description == "" {
		return e.Code
	}
	return e.Code + ": " + e.Description
}

// request sends a form to the party's token endpoint, with its authentication and,
// if it has a key for that, a proof of possession. The form says which grant. An
// error answer is a *refusedError.
func (p *party) request(ctx context.Context, client *http.Client, form url.Values) (*granted, error) {
	sent := time.Now()
	status, header, body, err := p.post(ctx, client, p.Token, form, "")
	if err != nil {
		return nil, err
	}
	got, err := decodeGranted(status, body, sent, p.ProofKey != nil)
	var refused *refusedError
	if nonce := header.Get("DPoP-Nonce"); errors.As(err, &refused) && refused.Code == "use_dpop_nonce" && p.ProofKey != nil && visible(nonce, maxToken) {
		if status, _, body, err = p.post(ctx, client, p.Token, form, nonce); err != nil {
			return nil, err
		}
		return decodeGranted(status, body, sent, true)
	}
	return got, err
}

// revoke tells the authorization server that a token is not used any more (RFC
// 7009). hint is the token's kind.
func (p *party) revoke(ctx context.Context, client *http.Client, token, hint string) error {
	status, _, body, err := p.post(ctx, client, p.Revocation, url.Values{"token": {token}, "token_type_hint": {hint}}, "")
	if err != nil || status == http.StatusOK {
		return err
	}
	return decodeRefused(status, body)
}

// post sends a form to an endpoint of the authorization server. Redirects are not
// followed: they would take the party's secret elsewhere.
func (p *party) post(ctx context.Context, client *http.Client, endpoint string, form url.Values, nonce string) (status int, header http.Header, body []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("the authorization server did not answer within %s", requestTimeout))
	defer cancel()
	r, err := p.form(ctx, endpoint, form)
	if err != nil {
		return 0, nil, nil, err
	}
	if p.ProofKey != nil {
		proof, err := p.proof(r.Method, endpoint, "", nonce)
		if err != nil {
			return 0, nil, nil, err
		}
		r.Header.Set("DPoP", proof)
	}
	response, err := direct(client).Do(r)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the address, which the server chose
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, nil, nil, fmt.Errorf("the authorization server %s cannot be reached: %w", r.URL.Host, err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("the answer of the authorization server %s was cut off: %w", r.URL.Host, err)
	case len(body) > maxAnswer:
		err = fmt.Errorf("%w: the answer of the authorization server %s is longer than %d bytes", ErrHostile, r.URL.Host, maxAnswer)
	}
	return response.StatusCode, response.Header, body, err
}

// direct returns a client that follows no redirects and keeps no cookies, for
// requests with secrets.
func direct(client *http.Client) *http.Client {
	c := *client
	c.Jar = nil
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// form returns a request with a form, by which the party authenticates itself.
func (p *party) form(ctx context.Context, endpoint string, form url.Values) (*http.Request, error) {
	sent := url.Values{}
	for name, values := range form {
		sent[name] = values
	}
	var basic bool
	switch p.Method {
	case "none":
		sent.Set("client_id", p.ID)
	case "client_secret_basic":
		basic = true
	case "client_secret_post":
		sent.Set("client_id", p.ID)
		sent.Set("client_secret", p.Secret)
	case "private_key_jwt":
		if err := p.assertion(sent); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the authorization server asks clients to authenticate themselves with %q, which is not supported", printable(p.Method))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(sent.Encode()))
	if err != nil {
		return nil, fmt.Errorf("%w: an address of the authorization server cannot be used", ErrHostile)
	}
	if basic { // RFC 6749, section 2.3.1
		r.SetBasicAuth(url.QueryEscape(p.ID), url.QueryEscape(p.Secret))
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	return r, nil
}

// decodeGranted reads the answer of a token endpoint to a request that was sent at a
// time. proven means that it had a proof of possession.
func decodeGranted(status int, body []byte, sent time.Time, proven bool) (*granted, error) {
	var answer struct {
		Access  string          `json:"access_token"`
		Type    string          `json:"token_type"`
		Expires json.RawMessage `json:"expires_in"`
		Refresh string          `json:"refresh_token"`
		ID      string          `json:"id_token"`
		Scope   *string         `json:"scope"`
		Error   string          `json:"error"`
	}
	if status != http.StatusOK {
		return nil, decodeRefused(status, body)
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, errors.New("the authorization server's answer is not JSON with a token")
	}
	if answer.Error != "" { // some say so with status 200
		return nil, decodeRefused(status, body)
	}
	got := &granted{Access: answer.Access, Refresh: answer.Refresh, ID: answer.ID}
	for _, token := range []string{got.Access, got.Refresh, got.ID} {
		if token != "" && !visible(token, maxToken) {
			return nil, fmt.Errorf("%w: the authorization server gave a token that is longer than %d bytes or has other characters than tokens have", ErrHostile, maxToken)
		}
	}
	if got.Access == "" {
		return nil, errors.New("the authorization server's answer has no token")
	}
	switch {
	case answer.Type == "" || strings.EqualFold(answer.Type, typeBearer):
		got.Type = typeBearer
	case strings.EqualFold(answer.Type, typeDPoP) && proven:
		got.Type = typeDPoP
	default:
		return nil, fmt.Errorf("%w: the authorization server gave a token of the type %q, which was not asked for", ErrHostile, printable(answer.Type))
	}
	if lifetime := lifetime(answer.Expires); lifetime > 0 {
		got.Expires = sent.Add(lifetime).Round(0)
	}
	if answer.Scope != nil {
		scopes, ok := splitScopes(*answer.Scope)
		if !ok {
			return nil, fmt.Errorf("%w: the authorization server granted more than %d scopes, or some that are not valid", ErrHostile, maxScopes)
		}
		got.Scopes = scopes
	}
	return got, nil
}

// lifetime reads the seconds that a token is valid: a number, or a string with one.
// Zero means that it is not known, or that it has no end.
func lifetime(raw json.RawMessage) time.Duration {
	seconds, err := strconv.ParseFloat(string(bytes.Trim(raw, `"`)), 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxLifetime.Seconds() {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// splitScopes splits a list of scopes, which is not nil then. ok is false if there
// are too many, or if one is not valid.
func splitScopes(list string) (scopes []string, ok bool) {
	if len(list) > maxScopes*(maxScope+1) {
		return nil, false
	}
	scopes = strings.Fields(list)
	for _, scope := range scopes {
		if !visible(scope, maxScope) || strings.ContainsAny(scope, `"\`) {
			return nil, false
		}
	}
	return scopes, len(scopes) <= maxScopes
}

// decodeRefused reads an error answer.
func decodeRefused(status int, body []byte) error {
	var answer struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || !visible(answer.Error, maxScope) || status >= http.StatusInternalServerError {
		return fmt.Errorf("the authorization server answered with status %d", status)
	}
	return &refusedError{answer.Error, printable(answer.Description)}
}

// visible reports whether a string is of 1 to max visible ASCII characters.
func visible(s string, max int) bool {
	if s == "" || len(s) > max {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// printable returns what others say in a form that can be shown: on one line,
// bounded.
func printable(s string) string {
	const most = 4 * maxText // bytes; what follows would be cut off anyway
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\ufffd' // such as one that no version of Unicode has yet
		}
		return r
	}, invisible.Line(strings.ToValidUTF8(s[:min(len(s), most)], "\ufffd")))
	if runes := []rune(s); len(runes) > maxText {
		return string(runes[:maxText-1]) + "…"
	}
	return s
}

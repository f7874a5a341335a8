package definitions

import (
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// OAuth is how the user signs in at a remote server, secrets included; see
// oauth.Client. It shows nothing when it is printed or logged.
type OAuth struct {
	Off                   bool // never
	ID, Secret, Issuer    string
	Scopes                []string
	RedirectURL           string
	Grant                 string
	Key, Algorithm        string
	Assertion             string
	IdP, IdPID, IdPSecret string // the organization's identity provider
}

func (OAuth) String() string               { return redacted }
func (OAuth) GoString() string             { return redacted }
func (OAuth) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (OAuth) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Grants are the words for how a token is obtained; the empty word stands for a
// person who signs in.
var Grants = []string{"", "client_credentials", "workload", "enterprise"}

// maxScopes bounds a list of scopes.
const maxScopes = 100

// secret returns what must not be shown.
func (o *OAuth) secret() []string { return []string{o.Secret, o.Key, o.Assertion, o.IdPSecret} }

// open returns the strings that can have references to secrets.
func (o *OAuth) open() []*string {
	return []*string{&o.ID, &o.Secret, &o.Issuer, &o.Key, &o.Assertion, &o.IdP, &o.IdPID, &o.IdPSecret}
}

// Refers reports whether there are references to secrets, for Resolve.
func (o *OAuth) Refers() bool {
	return slices.ContainsFunc(o.open(), func(s *string) bool { return strings.Contains(*s, "${") })
}

// Identity tells ways to sign in apart. It has secrets.
func (o *OAuth) Identity() []string {
	out := append([]string{o.RedirectURL, o.Grant, o.Algorithm}, o.Scopes...)
	for _, text := range o.open() {
		out = append(out, *text)
	}
	return out
}

// entry returns what stands in an entry for it, and nil for the zero value.
func (o *OAuth) entry() any {
	if o.Off {
		return false
	}
	out := map[string]any{}
	put := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	put("clientId", o.ID)
	put("clientSecret", o.Secret)
	put("issuer", o.Issuer)
	put("redirectUrl", o.RedirectURL)
	put("grant", o.Grant)
	put("privateKey", o.Key)
	put("algorithm", o.Algorithm)
	put("assertion", o.Assertion)
	if len(o.Scopes) > 0 {
		out["scopes"] = o.Scopes
	}
	if o.IdP != "" {
		out["idp"] = map[string]string{"issuer": o.IdP, "clientId": o.IdPID, "clientSecret": o.IdPSecret}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// oauth reads how the user signs in: false for never, or an object. Other clients
// have objects with a few of the keys and more of their own; in their files, what
// cannot be read is left to them.
func (p *entryParser) oauth(key string, v *node) {
	o := &p.remote.OAuth
	switch {
	case v.kind == 'f':
		o.Off = true
		return
	case v.kind == 't' || v.kind == 'n':
		return
	case v.kind != '{' && p.strict:
		p.fail(v.line, "%s must be false or an object, not %s", key, v.what())
		return
	}
	for i := range v.members {
		m := &v.members[i]
		if m.value.kind != 'n' {
			p.oauthMember(o, key+".", m.key, m.line, &m.value)
		}
	}
	if !p.strict {
		return
	}
	switch {
	case o.Grant == "client_credentials" && (o.ID == "" || o.Secret == "" && o.Key == ""):
		p.fail(v.line, "%s: the grant client_credentials needs clientId, and clientSecret or privateKey", key)
	case o.Grant == "workload" && o.Assertion == "":
		p.fail(v.line, "%s: the grant workload needs assertion", key)
	case o.Grant == "enterprise" && o.IdP == "":
		p.fail(v.line, "%s: the grant enterprise needs idp", key)
	case o.Grant != "enterprise" && o.IdP != "":
		p.fail(v.line, "%s: idp is for the grant enterprise", key)
	case (o.Secret != "" || o.Key != "") && o.ID == "":
		p.fail(v.line, "%s: clientSecret and privateKey need clientId", key)
	}
}

var oauthKeys = []string{
	"clientId", "clientSecret", "issuer", "scopes", "redirectUrl", "callbackPort", "grant", "privateKey", "algorithm", "assertion", "idp",
}

func (p *entryParser) oauthMember(o *OAuth, within, key string, line int, v *node) {
	text := func() string {
		if v.kind != '"' && !p.strict {
			return ""
		}
		return p.expand.variables(p.string(within+key, v))
	}
	switch key {
	case "clientId", "client_id", "CLIENT_ID":
		o.ID = text()
	case "clientSecret", "client_secret", "CLIENT_SECRET":
		o.Secret = text()
	case "issuer":
		o.Issuer = text()
	case "scopes", "scope":
		o.Scopes = p.scopes(within+key, v)
	case "redirectUrl", "redirectUri":
		p.redirect(o, within+key, text(), line)
	case "callbackPort":
		port, err := strconv.ParseUint(v.text, 10, 16)
		if v.kind != '0' && v.kind != '"' || err != nil || port == 0 {
			if p.strict {
				p.fail(line, "%s must be a port", within+key)
			}
			return
		}
		// What clients of Claude Code are registered for.
		p.redirect(o, within+key, "http://localhost:"+v.text+"/callback", line)
	case "grant":
		o.Grant = text()
		if o.Grant == "authorization_code" {
			o.Grant = ""
		}
		if !slices.Contains(Grants, o.Grant) {
			o.Grant = ""
			if p.strict {
				p.fail(line, "%s must be one of client_credentials, workload, enterprise", within+key)
			}
		}
	case "privateKey":
		o.Key = text()
	case "algorithm":
		o.Algorithm = text()
	case "assertion":
		o.Assertion = text()
	case "idp":
		if v.kind != '{' {
			if !p.strict {
				return
			}
			p.fail(line, "%s must be an object, not %s", within+key, v.what())
			return
		}
		var idp OAuth
		for i := range v.members {
			switch m := &v.members[i]; m.key {
			case "issuer", "clientId", "clientSecret":
				p.oauthMember(&idp, within+"idp.", m.key, m.line, &m.value)
			default:
				p.warn(m.line, "unknown key %sidp.%s is ignored%s", within, clip(m.key), didYouMean(m.key, []string{"issuer", "clientId", "clientSecret"}))
			}
		}
		o.IdP, o.IdPID, o.IdPSecret = idp.Issuer, idp.ID, idp.Secret
	default:
		if p.strict {
			p.warn(line, "unknown key %s%s is ignored%s", within, clip(key), didYouMean(key, oauthKeys))
		}
	}
}

// scopes is a list, or one string with spaces between them.
func (p *entryParser) scopes(key string, v *node) []string {
	var list []string
	switch {
	case v.kind == '"':
		list = strings.Fields(p.string(key, v))
	case v.kind == '[' || p.strict:
		list = p.strings(key, v)
	}
	// RFC 6749, section 3.3.
	bad := func(scope string) bool {
		return scope == "" || len(scope) > 200 || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
	}
	if len(list) > maxScopes || slices.ContainsFunc(list, bad) {
		if p.strict {
			p.fail(v.line, "%s is not a list of at most %d scopes", key, maxScopes)
		}
		return nil
	}
	return list
}

// redirect takes an address on this machine for browsers to return to.
func (p *entryParser) redirect(o *OAuth, key, text string, line int) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	port := err == nil && u.Port() != "" && u.Port() != "0"
	loopback := err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
	switch {
	case port && loopback && u.Scheme == "http" && u.RawQuery == "" && u.Fragment == "" && u.User == nil:
		o.RedirectURL = text
	case p.strict:
		p.fail(line, "%s must be an address on this machine with a port, such as http://127.0.0.1:8085/callback", key)
	}
}

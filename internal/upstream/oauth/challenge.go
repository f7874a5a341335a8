package oauth

import (
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// The bounds of what servers and authorization servers say.
const (
	maxChallenge = 32 << 10 // bytes of a header
	maxURL       = 2 << 10
	maxNonce     = 1 << 10
)

// challenge is what a server's answer with 401 or 403 says (RFC 6750, RFC 9728).
type challenge struct {
	Metadata string   // the URL of the resource's metadata
	Error    string   // such as insufficient_scope
	Scopes   []string // that the request needs
	Nonce    string   // for proofs (RFC 9449)
}

// readChallenge reads the headers of an answer. What cannot be read is left out.
func readChallenge(header http.Header) challenge {
	var c challenge
	for _, line := range header.Values("WWW-Authenticate") {
		if len(line) > maxChallenge {
			continue
		}
		list, err := oauthex.ParseWWWAuthenticate([]string{line})
		if err != nil {
			continue
		}
		for _, one := range list {
			if at := one.Params["resource_metadata"]; c.Metadata == "" && visible(at, maxURL) {
				c.Metadata = at
			}
			if one.Scheme != "bearer" && one.Scheme != "dpop" {
				continue
			}
			if code := one.Params["error"]; c.Error == "" && isWord(code, maxScope) {
				c.Error = code
			}
			if c.Scopes == nil {
				c.Scopes = words(strings.Fields(one.Params["scope"]), maxScopes)
			}
		}
	}
	if nonce := header.Get("DPoP-Nonce"); isWord(nonce, maxNonce) {
		c.Nonce = nonce
	}
	return c
}

// isWord reports whether s can be a scope, an error code or a nonce: visible ASCII
// without quotes and backslashes (RFC 6749, appendix A).
func isWord(s string, longest int) bool { return visible(s, longest) && !strings.ContainsAny(s, `"\`) }

// words returns the words of a list, without duplicates, and at most so many.
func words(list []string, most int) []string {
	var good []string
	for _, s := range list {
		if len(good) < most && isWord(s, maxScope) && !slices.Contains(good, s) {
			good = append(good, s)
		}
	}
	return good
}

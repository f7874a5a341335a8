package runs

import (
	"net/url"
	"strings"
)

// uriPrefix begins the addresses of files that runs left, for clients that read
// them as resources.
const uriPrefix = "sallyport://runs/"

// URI is the address of a file that a run left.
func URI(id, path string) string {
	return uriPrefix + id + "/files/" + (&url.URL{Path: path}).EscapedPath()
}

// ParseURI takes an address of [URI] apart.
func ParseURI(uri string) (id, path string, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriPrefix)
	if !ok {
		return "", "", false
	}
	id, rest, ok = strings.Cut(rest, "/files/")
	if !ok || !validID().MatchString(id) {
		return "", "", false
	}
	path, err := url.PathUnescape(rest)
	return id, path, err == nil && path != ""
}

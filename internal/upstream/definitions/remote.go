package definitions

import (
	"crypto/sha256"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// maxURL bounds a URL.
const maxURL = 16 << 10

func (p *entryParser) setURL(key string, v *node) {
	if p.url != "" {
		// Gemini has two keys; the one for the newer transport wins.
		if key == "httpUrl" {
			p.url = ""
		} else {
			return
		}
	}
	p.url = p.string(key, v)
	if p.url == "" && !p.failed {
		p.fail(v.line, "%s is empty", key)
	}
	p.remote.URL = p.expand.variables(p.url)
	if key == "httpUrl" {
		p.kind = HTTP
	}
}

// checkURL requires an absolute http or https URL. References are not resolved
// yet.
func (p *entryParser) checkURL(n *node) {
	line := n.line
	for _, key := range []string{"url", "serverUrl", "httpUrl", "uri"} {
		if v, ok := n.get(key); ok {
			line = v.line
		}
	}
	text := p.remote.URL
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		p.fail(line, "the url is longer than %d bytes", maxURL)
	case err != nil || u.Opaque != "" || strings.ContainsAny(text, " \t\r\n"):
		// The error would show the URL, and what is secret in it.
		p.fail(line, "the url is not valid")
	case u.Scheme != "http" && u.Scheme != "https":
		p.fail(line, "the url must begin with https:// or http://")
	case u.Host == "":
		p.fail(line, "the url names no host")
	}
}

// isHeader reports whether s is an HTTP token and not the name of a header that
// controls the connection.
func isHeader(name string) bool {
	if name == "" || slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection", "upgrade"}, strings.ToLower(name)) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return true
}

func (p *entryParser) headers(key string, v *node) map[string]string {
	headers := p.pairs(key, v, isHeader, "header")
	for name, value := range headers {
		if strings.ContainsAny(value, "\r\n\x00") {
			p.fail(v.line, "%s: the value of %s has a line break", key, clip(name))
		}
	}
	return headers
}

// headersFromEnvironment reads Codex's headers, whose values are variables, and
// its bearer token.
func (p *entryParser) headersFromEnvironment(key string, v *node) {
	names := map[string]string{}
	prefix := ""
	if key == "env_http_headers" {
		names = p.pairs(key, v, isHeader, "header")
	} else if name := p.string(key, v); name != "" {
		names["Authorization"], prefix = name, "Bearer "
	}
	headers := map[string]string{}
	for header, name := range names {
		value, ok := p.expand.env(name)
		if p.expand.translate && isName(name) {
			headers[header] = prefix + "${" + name + "}"
			continue
		}
		if p.blind {
			p.fail(v.line, "%s: variables cannot be asked for", key)
			continue
		}
		if !ok || value == "" {
			p.expand.miss[clip(name)] = struct{}{}
			continue
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			p.fail(v.line, "%s: the value of %s has a line break", key, clip(name))
			continue
		}
		p.expand.used[name] = value
		headers[header] = prefix + value
	}
	p.merge(&p.remote.Headers, headers)
}

func (p *entryParser) tls(v *node) {
	if v.kind != '{' {
		p.fail(v.line, "tls must be an object, not %s", v.what())
		return
	}
	file := func(key string, v *node) string {
		path := p.expand.path(p.string("tls."+key, v))
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(p.expand.base, path)
		}
		return path
	}
	t := &p.remote.TLS
	for i := range v.members {
		m := &v.members[i]
		if m.value.kind == 'n' {
			continue
		}
		switch m.key {
		case "caFile":
			t.CAFile = file(m.key, &m.value)
		case "certFile":
			t.CertFile = file(m.key, &m.value)
		case "keyFile":
			t.KeyFile = file(m.key, &m.value)
		case "serverName":
			t.ServerName = p.string("tls.serverName", &m.value)
		case "insecure":
			t.Insecure = p.bool("tls.insecure", &m.value)
		default:
			p.warn(m.line, "unknown key tls.%s is ignored%s", clip(m.key),
				didYouMean(m.key, []string{"caFile", "certFile", "keyFile", "serverName", "insecure"}))
		}
	}
}

// Same reports whether a running server may keep running when its definition is
// replaced by another: nothing differs in what it was started with, in what may
// be called, and in how long that may take.
func (d Definition) Same(other Definition) bool {
	if d.Name != other.Name || d.Disabled != other.Disabled || d.Offer != other.Offer ||
		d.Sharing != other.Sharing || d.StartTimeout != other.StartTimeout || d.CallTimeout != other.CallTimeout ||
		!slices.Equal(d.DenyTools, other.DenyTools) ||
		(d.AllowTools == nil) != (other.AllowTools == nil) || !slices.Equal(d.AllowTools, other.AllowTools) {
		return false
	}
	a, b := d.launch, other.launch
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(a.Launch, b.Launch) && reflect.DeepEqual(a.remote, b.remote) && a.references == b.references
}

// Digest returns a digest of what was written: the entry, secrets included, and
// the env file that it names, but not the values of variables.
func (d Definition) Digest() [sha256.Size]byte {
	if d.launch == nil {
		return [sha256.Size]byte{}
	}
	return d.launch.digest
}

// digest covers the entry and its format, so that nothing that is started
// escapes it.
func (p *entryParser) digest(n *node) [sha256.Size]byte {
	h := sha256.New()
	n.hash(h)
	for _, name := range slices.Sorted(maps.Keys(p.fileEnv)) {
		hashText(h, 'e', name)
		hashText(h, '=', p.fileEnv[name])
	}
	for _, id := range slices.Sorted(maps.Keys(p.expand.asked)) {
		hashText(h, 'i', id)
		hashText(h, '=', p.expand.asked[id].fallback)
	}
	for _, name := range slices.Sorted(maps.Keys(p.expand.given)) {
		hashText(h, 'v', name)
		hashText(h, '=', p.expand.given[name])
	}
	hashText(h, 'd', p.def.Description) // it may be the file's
	return [sha256.Size]byte(h.Sum(nil))
}

// also returns what the digest covers and the entry uses but does not show.
func (p *entryParser) also(n *node) []string {
	var lines []string
	if _, ok := n.get("description"); !ok && p.def.Description != "" {
		lines = append(lines, "the file's description: "+p.def.Description)
	}
	for _, name := range slices.Sorted(maps.Keys(p.fileEnv)) {
		lines = append(lines, "from the file of variables: "+name+"="+p.fileEnv[name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.expand.given)) {
		lines = append(lines, "from the project's settings of Claude Code: "+name+"="+p.expand.given[name])
	}
	for _, id := range slices.Sorted(maps.Keys(p.expand.asked)) {
		if in := p.expand.asked[id]; in.fallback != "" && p.expand.asks[id] {
			lines = append(lines, "for the input "+id+": "+in.fallback)
		}
	}
	return lines
}

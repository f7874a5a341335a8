package oauth

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

const (
	mcpURL = "https://mcp.example/mcp"
	idp    = "https://idp.example"
	// Where the metadata of both is.
	mcpMetadata = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
	idpMetadata = "https://idp.example/.well-known/oauth-authorization-server"
)

// fields are members of a document that a test adds or, with nil, removes.
type fields map[string]any

func document(base, changes fields) webPage {
	all := fields{}
	for _, f := range []fields{base, changes} {
		for name, value := range f {
			if all[name] = value; value == nil {
				delete(all, name)
			}
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return webPage{body: string(data)}
}

// resourceDocument is the metadata of a server, and issuerDocument that of an
// authorization server.
func resourceDocument(resource, issuer string, changes fields) webPage {
	return document(fields{"resource": resource, "authorization_servers": []string{issuer}}, changes)
}

func issuerDocument(issuer string, changes fields) webPage {
	return document(fields{
		"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token",
		"registration_endpoint": issuer + "/register", "revocation_endpoint": issuer + "/revoke", "userinfo_endpoint": issuer + "/me",
		"code_challenge_methods_supported": []string{"plain", "S256"}, "response_types_supported": []string{"code"},
	}, changes)
}

// issuerOf is what discover returns for issuerDocument.
func issuerOf(issuer, resource string, change func(*authority)) *authority {
	a := &authority{
		Issuer: issuer, Authorization: issuer + "/authorize", Token: issuer + "/token", Registration: issuer + "/register",
		Revocation: issuer + "/revoke", UserInfo: issuer + "/me", Resource: resource, pkce: []string{"plain", "S256"},
	}
	if change != nil {
		change(a)
	}
	return a
}

// fixed is what discover returns for a server without any metadata.
func fixed(issuer, resource string) *authority {
	return &authority{
		Issuer: issuer, Authorization: issuer + "/authorize", Token: issuer + "/token", Registration: issuer + "/register",
		Resource: resource, pkce: []string{"S256"},
	}
}

// TestDiscover has the orders of requests that the protocol's conformance suite
// checks, among others.
func TestDiscover(t *testing.T) {
	const wellKnown, root = "https://mcp.example/.well-known/", "https://mcp.example/.well-known/oauth-protected-resource"
	for _, test := range []struct {
		name   string
		server string // "": mcpURL
		client Client
		c      challenge
		pages  map[string]webPage
		asked  []string
		want   *authority
	}{
		{
			name: "metadata-default", c: challenge{Metadata: mcpMetadata},
			pages: map[string]webPage{mcpMetadata: resourceDocument(mcpURL, idp, nil), idpMetadata: issuerDocument(idp, nil)},
			asked: []string{mcpMetadata, idpMetadata},
			want:  issuerOf(idp, mcpURL, nil),
		},
		{
			name:  "metadata-var1",
			pages: map[string]webPage{mcpMetadata: resourceDocument(mcpURL, idp, nil), idp + "/.well-known/openid-configuration": issuerDocument(idp, nil)},
			asked: []string{mcpMetadata, idpMetadata, idp + "/.well-known/openid-configuration"},
			want:  issuerOf(idp, mcpURL, nil),
		},
		{
			name: "metadata-var2",
			pages: map[string]webPage{
				root: resourceDocument("https://mcp.example", idp+"/tenant1", nil), idpMetadata + "/tenant1": issuerDocument(idp+"/tenant1", nil),
			},
			asked: []string{mcpMetadata, root, idpMetadata + "/tenant1"},
			want:  issuerOf(idp+"/tenant1", "https://mcp.example", nil),
		},
		{
			name: "metadata-var3", c: challenge{Metadata: "https://mcp.example/custom/metadata/location.json"},
			pages: map[string]webPage{
				"https://mcp.example/custom/metadata/location.json": resourceDocument(mcpURL, idp+"/tenant1", nil),
				idp + "/tenant1/.well-known/openid-configuration":   issuerDocument(idp+"/tenant1", nil),
			},
			asked: []string{
				"https://mcp.example/custom/metadata/location.json", idpMetadata + "/tenant1",
				idp + "/.well-known/openid-configuration/tenant1", idp + "/tenant1/.well-known/openid-configuration",
			},
			want: issuerOf(idp+"/tenant1", mcpURL, nil),
		},
		{
			name:  "2025-03-26-oauth-metadata-backcompat",
			pages: map[string]webPage{wellKnown + "oauth-authorization-server": issuerDocument("https://mcp.example", nil)},
			asked: []string{mcpMetadata, root, wellKnown + "oauth-authorization-server"},
			want:  issuerOf("https://mcp.example", mcpURL, nil),
		},
		{
			name:  "2025-03-26-oauth-endpoint-fallback",
			asked: []string{mcpMetadata, root, wellKnown + "oauth-authorization-server", wellKnown + "openid-configuration"},
			want:  fixed("https://mcp.example", mcpURL),
		},
		{
			name: "a server at the root, with a query", server: "https://mcp.example/?key=s3cret",
			asked: []string{root, wellKnown + "oauth-authorization-server", wellKnown + "openid-configuration"},
			want:  fixed("https://mcp.example", "https://mcp.example/"),
		},
		{
			name: "a path with a query", server: mcpURL + "/?a=b#c",
			pages: map[string]webPage{mcpMetadata + "/?a=b": resourceDocument(mcpURL+"/?a=b", idp, nil), idpMetadata: issuerDocument(idp, nil)},
			asked: []string{mcpMetadata + "/?a=b", idpMetadata},
			want:  issuerOf(idp, mcpURL+"/?a=b", nil),
		},
		{
			name: "the challenge leads nowhere", c: challenge{Metadata: "https://mcp.example/gone"},
			pages: map[string]webPage{"https://mcp.example/gone": {status: 404}, mcpMetadata: resourceDocument(mcpURL, idp, nil), idpMetadata: issuerDocument(idp, nil)},
			asked: []string{"https://mcp.example/gone", mcpMetadata, idpMetadata},
			want:  issuerOf(idp, mcpURL, nil),
		},
		{
			name: "pages for people, and a bad day",
			pages: map[string]webPage{
				mcpMetadata: {kind: "text/html", body: "<html>"}, root: resourceDocument("https://mcp.example/", idp, nil),
				idpMetadata: {status: 500}, idp + "/.well-known/openid-configuration": issuerDocument(idp, nil),
			},
			asked: []string{mcpMetadata, root, idpMetadata, idp + "/.well-known/openid-configuration"},
			want:  issuerOf(idp, "https://mcp.example/", nil),
		},
		{
			name: "slashes at the ends", server: mcpURL + "/",
			pages: map[string]webPage{mcpMetadata + "/": resourceDocument(mcpURL, idp+"/", nil), idpMetadata: issuerDocument(idp, fields{"issuer": idp + "/"})},
			asked: []string{mcpMetadata + "/", idpMetadata},
			want:  issuerOf(idp, mcpURL, func(a *authority) { a.Issuer = idp + "/" }),
		},
		{
			name: "all that is listed", c: challenge{Scopes: []string{"asked"}},
			pages: map[string]webPage{
				mcpMetadata: resourceDocument(mcpURL, idp, fields{"scopes_supported": []string{"a", "b"}}),
				idpMetadata: issuerDocument(idp, fields{
					"scopes_supported": []string{"openid", "offline_access", "o\"dd"}, "token_endpoint_auth_methods_supported": []string{"none"},
					"client_id_metadata_document_supported": true, "authorization_response_iss_parameter_supported": true,
					"dpop_signing_alg_values_supported": []string{"ES256"}, "grant_types_supported": []string{"authorization_code"},
				}),
			},
			asked: []string{mcpMetadata, idpMetadata},
			want: issuerOf(idp, mcpURL, func(a *authority) {
				a.Scopes, a.Supported, a.Methods = []string{"asked"}, []string{"openid", "offline_access"}, []string{"none"}
				a.Metadata, a.Names, a.Proofs, a.Grants = true, true, []string{"ES256"}, []string{"authorization_code"}
			}),
		},
		{
			name:  "scopes of the metadata",
			pages: map[string]webPage{mcpMetadata: resourceDocument(mcpURL, idp, fields{"scopes_supported": []string{"a", "b", "a"}}), idpMetadata: issuerDocument(idp, nil)},
			asked: []string{mcpMetadata, idpMetadata},
			want:  issuerOf(idp, mcpURL, func(a *authority) { a.Scopes = []string{"a", "b"} }),
		},
		{
			name: "the definition's choice", client: Client{ID: "x", Issuer: idp, Scopes: []string{"own"}},
			pages: map[string]webPage{
				mcpMetadata: resourceDocument(mcpURL, idp, fields{"authorization_servers": []string{"https://first.example", idp + "/"}, "scopes_supported": manyScopes(101)}),
				idpMetadata: issuerDocument(idp, nil),
			},
			asked: []string{mcpMetadata, idpMetadata},
			want:  issuerOf(idp, mcpURL, nil),
		},
		{
			name: "the definition's issuer for a server without metadata", client: Client{ID: "x", Issuer: idp},
			pages: map[string]webPage{idpMetadata: issuerDocument(idp, nil)},
			asked: []string{mcpMetadata, root, idpMetadata},
			want:  issuerOf(idp, mcpURL, nil),
		},
		{
			name: "no page for people is needed", client: Client{ID: "x", Grant: Credentials},
			pages: map[string]webPage{
				mcpMetadata: resourceDocument(mcpURL, idp, nil),
				idpMetadata: issuerDocument(idp, fields{"authorization_endpoint": nil, "code_challenge_methods_supported": nil}),
			},
			asked: []string{mcpMetadata, idpMetadata},
			want:  issuerOf(idp, mcpURL, func(a *authority) { a.Authorization, a.pkce = "", nil }),
		},
		{
			name: "plain http on this machine", server: "http://localhost:8080/mcp",
			pages: map[string]webPage{
				"http://localhost:8080/.well-known/oauth-protected-resource/mcp": resourceDocument("http://localhost:8080/mcp", "http://127.0.0.1:9", nil),
				"http://127.0.0.1:9/.well-known/oauth-authorization-server":      issuerDocument("http://127.0.0.1:9", nil),
			},
			asked: []string{"http://localhost:8080/.well-known/oauth-protected-resource/mcp", "http://127.0.0.1:9/.well-known/oauth-authorization-server"},
			want:  issuerOf("http://127.0.0.1:9", "http://localhost:8080/mcp", nil),
		},
	} {
		w := &web{pages: test.pages}
		s := &Server{Name: "notes", URL: mcpURL, Client: test.client, HTTP: &http.Client{Transport: w}}
		if test.server != "" {
			s.URL = test.server
		}
		got, err := discover(t.Context(), s, test.c)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		var asked []string
		for _, at := range test.asked {
			asked = append(asked, "GET "+at)
		}
		if diff := cmp.Diff(asked, w.asked); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(authority{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestHostileMetadata: each error is an ErrHostile, unless the network is the
// reason, and says why.
func TestHostileMetadata(t *testing.T) {
	type row struct {
		name     string
		resource webPage // of mcpMetadata
		issuer   webPage // of idpMetadata
		want     string
	}
	good := resourceDocument(mcpURL, idp, nil)
	resource := func(name string, changes fields, want string) row {
		return row{name, resourceDocument(mcpURL, idp, changes), issuerDocument(idp, nil), want}
	}
	issuer := func(name string, changes fields, want string) row {
		return row{name, good, issuerDocument(idp, changes), want}
	}
	authorities := make([]string, 1000)
	for i := range authorities {
		authorities[i] = fmt.Sprintf("https://idp%d.example", i)
	}
	rows := []row{
		issuer("another issuer", fields{"issuer": "https://attacker.example"}, "it is that of another issuer, https://attacker.example"),
		issuer("no issuer", fields{"issuer": nil}, "it is that of another issuer"),
		issuer("an issuer with a path", fields{"issuer": idp + "/tenant"}, "it is that of another issuer"),
		issuer("no token endpoint", fields{"token_endpoint": nil}, "it has no token_endpoint"),
		issuer("no page for people", fields{"authorization_endpoint": nil}, "no authorization_endpoint"),
		issuer("no PKCE", fields{"code_challenge_methods_supported": nil}, "does not support PKCE with S256"),
		issuer("PKCE without S256", fields{"code_challenge_methods_supported": []string{"plain", "s256"}}, "does not support PKCE with S256"),
		issuer("a page for people on this machine", fields{"authorization_endpoint": "https://localhost/authorize"}, "at the local address localhost"),
		issuer("a page for people on a private network", fields{"authorization_endpoint": "https://192.168.1.1:8443/authorize"}, "at the local address 192.168.1.1:8443"),
		issuer("a page for people at carrier-grade NAT", fields{"authorization_endpoint": "https://100.64.0.1/"}, "at the local address"),
		issuer("a page for people with link-local metadata", fields{"authorization_endpoint": "https://169.254.169.254/"}, "at the local address"),
		issuer("values of another type", fields{"token_endpoint": 7}, "values of other types"),

		resource("another server", fields{"resource": "https://evil.example/mcp"}, "that of another resource, https://evil.example/mcp"),
		resource("another path", fields{"resource": mcpURL + "/other"}, "that of another resource"),
		resource("half a path", fields{"resource": "https://mcp.example/mc"}, "that of another resource"),
		resource("another port", fields{"resource": "https://mcp.example:444/mcp"}, "that of another resource"),
		resource("plain http", fields{"resource": "http://mcp.example/mcp"}, "that of another resource"),
		resource("a user name", fields{"resource": "https://mcp.example@evil.example/mcp"}, "that of another resource"),
		resource("a fragment", fields{"resource": mcpURL + "#x"}, "that of another resource"),
		resource("a query", fields{"resource": mcpURL + "?tenant=1"}, "that of another resource"),
		resource("control characters", fields{"resource": "https://mcp.example/mcp\x1b[31m"}, "that of another resource"),
		resource("no resource", fields{"resource": nil}, "that of another resource"),
		resource("no authorization server", fields{"authorization_servers": nil}, "names no authorization server"),
		resource("1,000 authorization servers", fields{"authorization_servers": authorities}, "names 1000 authorization servers, at most 20"),
		resource("an authorization server with a query", fields{"authorization_servers": []string{idp + "?a=b"}}, "issuer contains a query"),
		resource("an authorization server with a fragment", fields{"authorization_servers": []string{idp + "#a"}}, "issuer contains a fragment"),
		resource("an authorization server without a host", fields{"authorization_servers": []string{"https:///x"}}, "issuer names no host"),
		resource("an authorization server with a password", fields{"authorization_servers": []string{"https://u:s3cret@idp.example"}}, "issuer contains a user name"),
		resource("an authorization server that is not a URL", fields{"authorization_servers": []string{"https://idp.example/\x07"}}, "issuer is not a URL"),
		resource("a long authorization server", fields{"authorization_servers": []string{idp + "/" + strings.Repeat("x", maxURL)}}, "issuer is not a URL"),
		resource("a scope with quotes", fields{"scopes_supported": []string{"read", `a"b`}}, "which is not a scope"),
		resource("a scope with a line", fields{"scopes_supported": []string{"a\nSet-Cookie: b"}}, "which is not a scope"),
		resource("a scope with an escape sequence", fields{"scopes_supported": []string{"\x1b[31m"}}, "which is not a scope"),
		resource("a long scope", fields{"scopes_supported": []string{strings.Repeat("x", 10000)}}, "which is not a scope"),
		resource("many scopes", fields{"scopes_supported": manyScopes(101)}, "lists 101 scopes, at most 100"),
		resource("a list of other things", fields{"authorization_servers": []any{fields{}}}, "values of other types"),

		{"a document of 100 MB", webPage{stream: io.LimitReader(spaces{}, 100<<20)}, webPage{}, "larger than 1048576 bytes"},
		{"another document of 100 MB", good, webPage{stream: io.LimitReader(spaces{}, 100<<20)}, "larger than 1048576 bytes"},
		{"not JSON", webPage{body: `{"resource": s3cret`}, webPage{}, "not valid JSON"},
		{"deep JSON", webPage{body: strings.Repeat("[", 500000)}, webPage{}, "not valid JSON"},
		{"an address that must not be connected to", webPage{err: rule("host mcp.example is on a private network")}, webPage{}, "refused: host mcp.example is on a private network"},
		{"an authorization server on a private network", good, webPage{err: rule("host idp.example (10.0.0.1) is on a private network, \x1b[31m")}, "refused: host idp.example (10.0.0.1) is on a private network"},
	}
	for _, name := range []string{"authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint", "userinfo_endpoint"} {
		rows = append(rows, issuer("plain http", fields{name: "http://idp.example/x"}, name+" is http://idp.example, where https is required"))
		for _, scheme := range []string{"javascript", "data", "file", "vbscript", "ftp", "mcp"} {
			rows = append(rows, issuer(scheme, fields{name: scheme + ":alert(1)//x"}, name+` has the scheme "`+scheme+`"`))
		}
		rows = append(rows,
			issuer("no scheme", fields{name: "//idp.example/x"}, name+` has the scheme ""`),
			issuer("no host", fields{name: "https:/x"}, name+" names no host"),
			issuer("a password", fields{name: "https://u:s3cret@idp.example/x"}, name+" contains a user name"),
			issuer("a line", fields{name: idp + "/x\r\nHost: evil.example"}, name+" is not a URL"))
	}
	for _, scheme := range []string{"http", "javascript", "file", "data"} {
		rows = append(rows, resource("an issuer with "+scheme, fields{"authorization_servers": []string{scheme + "://idp.example"}}, "issuer "))
	}
	for _, test := range rows {
		w := &web{pages: map[string]webPage{mcpMetadata: test.resource, idpMetadata: test.issuer}}
		_, err := discover(t.Context(), &Server{Name: "notes", URL: mcpURL, HTTP: &http.Client{Transport: w}}, challenge{})
		checkError(t, test.name, err, ErrHostile, test.want)
	}
	// The challenge and the definition.
	for _, test := range []struct {
		name   string
		c      challenge
		client Client
		kind   error
		pages  map[string]webPage
		want   string
	}{
		{"metadata with plain http", challenge{Metadata: "http://mcp.example/x"}, Client{}, ErrHostile, nil, "resource_metadata is http://mcp.example, where https is required"},
		{"metadata in a file", challenge{Metadata: "file:///etc/passwd"}, Client{}, ErrHostile, nil, `resource_metadata has the scheme "file"`},
		{"another issuer than in the definition", challenge{}, Client{Issuer: "https://own.example"}, ErrHostile, map[string]webPage{mcpMetadata: good}, "its definition names https://own.example"},
		{"no metadata of a named authorization server", challenge{}, Client{}, nil, map[string]webPage{mcpMetadata: good}, "https://idp.example has no metadata"},
		{"a server that cannot answer now", challenge{}, Client{}, nil, map[string]webPage{mcpMetadata: {status: 503}}, "unavailable: HTTP status 503"},
		{"an authorization server that cannot answer now", challenge{}, Client{}, nil, map[string]webPage{mcpMetadata: good, idpMetadata: {status: 429}}, "unavailable: HTTP status 429"},
		{"no network", challenge{}, Client{}, nil, map[string]webPage{mcpMetadata: {err: &url.Error{Op: "Get", URL: "https://s3cret.example", Err: io.ErrUnexpectedEOF}}}, "unexpected EOF"},
	} {
		w := &web{pages: test.pages}
		_, err := discover(t.Context(), &Server{Name: "notes", URL: mcpURL, Client: test.client, HTTP: &http.Client{Transport: w}}, test.c)
		checkError(t, test.name, err, test.kind, test.want)
	}
	slow := &web{pages: map[string]webPage{mcpMetadata: {stream: stuck{}}}}
	_, err := discover(t.Context(), &Server{Name: "notes", URL: mcpURL, HTTP: &http.Client{Transport: slow, Timeout: time.Millisecond}}, challenge{})
	checkError(t, "a document that comes one byte at a time", err, nil, "it took too long")
}

// TestDiscoverLikeSDK: what package oauthex accepts and how package auth asks is the
// same here.
func TestDiscoverLikeSDK(t *testing.T) {
	for _, issuer := range []string{idp, idp + "/tenant1", idp + "/a/b"} {
		for _, at := range authorityMetadataURLs(issuer) {
			pages := map[string]webPage{at: issuerDocument(issuer, fields{"client_id_metadata_document_supported": true})}
			theirs, ours := &web{pages: pages}, &web{pages: pages}
			m, err := auth.GetAuthServerMetadata(t.Context(), issuer, &http.Client{Transport: theirs})
			if err != nil {
				t.Fatal(err)
			}
			a, err := authorityOf(t.Context(), &Server{URL: mcpURL, HTTP: &http.Client{Transport: ours}}, issuer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(theirs.asked, ours.asked); diff != "" {
				t.Errorf("%s: requests (-theirs +ours):\n%s", at, diff)
			}
			got := [...]any{a.Issuer, a.Authorization, a.Token, a.Registration, a.Revocation, a.pkce, a.Metadata}
			want := [...]any{m.Issuer, m.AuthorizationEndpoint, m.TokenEndpoint, m.RegistrationEndpoint, m.RevocationEndpoint, m.CodeChallengeMethodsSupported, m.ClientIDMetadataDocumentSupported}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-theirs +ours):\n%s", at, diff)
			}
		}
	}
	server, err := url.Parse(mcpURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{mcpURL, "https://mcp.example", "https://evil.example/mcp", mcpURL + "/x"} {
		for _, asked := range []string{mcpURL, "https://mcp.example"} {
			w := &web{pages: map[string]webPage{mcpMetadata: resourceDocument(resource, idp, nil)}}
			_, err := oauthex.GetProtectedResourceMetadata(t.Context(), mcpMetadata, asked, &http.Client{Transport: w})
			if err == nil && !covers(resource, server) {
				t.Errorf("%s is accepted by oauthex and refused here", resource)
			}
		}
	}
}

func FuzzDiscover(f *testing.F) {
	resource, issuer := resourceDocument(mcpURL, idp, nil).body, issuerDocument(idp, nil).body
	f.Add(resource, issuer)
	f.Add(`{"resource":"https://mcp.example","authorization_servers":["http://localhost"],"scopes_supported":["\u0000"]}`, issuer)
	f.Add(resource, `{"issuer":"https://idp.example","token_endpoint":"javascript:x","authorization_endpoint":"https://[::1]"}`)
	f.Add(`[]`, `null`)
	f.Add(resource, `{"issuer":"\u05fc"}`) // no character
	f.Fuzz(func(t *testing.T, resource, issuer string) {
		w := &web{pages: map[string]webPage{mcpMetadata: {body: resource}, idpMetadata: {body: issuer}}}
		a, err := discover(t.Context(), &Server{Name: "notes", URL: mcpURL, HTTP: &http.Client{Transport: w}}, challenge{})
		if err != nil {
			checkText(t, "error", strings.ReplaceAll(err.Error(), "s3cret", ""))
			return
		}
		server, _ := url.Parse(mcpURL)
		if !covers(a.Resource, server) {
			t.Errorf("got the resource %q for %s", a.Resource, mcpURL)
		}
		for _, address := range []string{a.Authorization, a.Token, a.Registration, a.Revocation, a.UserInfo} {
			u, err := url.Parse(address)
			if err != nil || address != "" && u.Scheme != "https" && !(u.Scheme == "http" && isThisMachine(u.Hostname())) {
				t.Errorf("got the endpoint %q, want one with https", address)
			}
		}
		for _, scope := range a.Scopes {
			if !isWord(scope, maxScope) {
				t.Errorf("got the scope %q", scope)
			}
		}
	})
}

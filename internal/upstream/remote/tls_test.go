package remote

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(answering(`{"safe":1}`))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	plain := httptest.NewServer(answering(`{}`))
	defer plain.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	junk := filepath.Join(dir, "junk.pem")
	if err := os.WriteFile(junk, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	tests := []struct {
		name, url string
		tls       TLS
		text      string
	}{
		{"unknown authority", server.URL, TLS{}, "unknown authority"},
		{"its own authority", server.URL, TLS{CAFile: ca}, ""},
		{"another name", server.URL, TLS{CAFile: ca, ServerName: "elsewhere.example"}, "not elsewhere.example"},
		{"a name that it has", server.URL, TLS{CAFile: ca, ServerName: "example.com"}, ""},
		{"not checked", server.URL, TLS{Insecure: true}, ""},
		{"not TLS", strings.Replace(plain.URL, "http:", "https:", 1), TLS{}, "does not speak TLS"},
		{"nobody there", "https://" + closed.Addr().String(), TLS{}, "cannot be reached"},
		{"no file", server.URL, TLS{CAFile: filepath.Join(dir, "none")}, "caFile: "},
		{"no certificate in it", server.URL, TLS{CAFile: junk}, "no certificate in PEM"},
		{"no key", server.URL, TLS{CertFile: ca}, "certFile and keyFile"},
	}
	for _, test := range tests {
		got, err := call(t, NewNetwork(nil, nil), Target{URL: test.url, TLS: test.tls})
		switch {
		case test.text == "":
			if err != nil || string(got) != `{"safe":1}` {
				t.Errorf("%s: %s %v", test.name, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), test.text):
			t.Errorf("%s: %v", test.name, err)
		case !strings.Contains(test.text, "File") && !strings.Contains(test.text, "PEM") && !errors.Is(err, ErrUnreachable):
			t.Errorf("%s: %v is another kind", test.name, err)
		}
	}
}

// TestAuthoritiesOfClients: each client trusts what its own variables name.
func TestAuthoritiesOfClients(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reads the variables")
	}
	server := httptest.NewUnstartedServer(answering(`{"safe":1}`))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	for _, test := range []struct {
		name    string
		environ []string
		text    string
	}{
		{"none", nil, "unknown authority"},
		{"a file", []string{"SSL_CERT_FILE=" + ca}, ""},
		{"a directory", []string{"SSL_CERT_FILE=" + none, "SSL_CERT_DIR=/none:" + dir}, ""},
		{"another directory", []string{"SSL_CERT_DIR=" + none}, "unknown authority"},
		{"nothing there", []string{"SSL_CERT_FILE=" + none, "SSL_CERT_DIR=" + none}, "SSL_CERT_FILE"},
		{"none again", nil, "unknown authority"},
	} {
		_, err := call(t, NewNetwork(test.environ, nil), Target{URL: server.URL})
		if (err == nil) != (test.text == "") || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.text)
		}
	}
}

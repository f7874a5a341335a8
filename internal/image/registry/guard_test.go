package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestNoWayToThisMachine: a registry with TLS does not send the client to what
// listens here without it.
func TestNoWayToThisMachine(t *testing.T) {
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(service.Close)
	d := newDouble(t, true)
	n := d.push(t, "x:1", anImage(t, 1))
	d.before = func(w http.ResponseWriter, r *http.Request) bool {
		blob := strings.Contains(r.URL.Path, "/blobs/")
		if blob {
			http.Redirect(w, r, service.URL+"/shutdown", http.StatusTemporaryRedirect)
		}
		return blob
	}
	roots := x509.NewCertPool()
	roots.AddCert(d.Certificate())
	_, err := client(t, Options{TLS: &tls.Config{RootCAs: roots}}).Pull(t.Context(), n, t.TempDir(), nil)
	if !errors.Is(err, errDowngrade) || asked.Load() > 0 {
		t.Errorf("%v, and %d requests", err, asked.Load())
	}
}

// TestEndlessAnswer: what a registry says besides blobs has an end, also where
// nobody is interested in it.
func TestEndlessAnswer(t *testing.T) {
	for _, path := range []string{"/v2/", "/manifests/"} {
		d := newDouble(t, false)
		n := d.push(t, "x:1", anImage(t, 1))
		d.before = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, path) && !(path != "/v2/" && strings.Contains(r.URL.Path, path)) {
				return false
			}
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
			return true
		}
		// What matters is that it comes back.
		if _, err := client(t, Options{}).Pull(t.Context(), n, t.TempDir(), nil); path != "/v2/" && err == nil {
			t.Error("a manifest without end")
		}
	}
}

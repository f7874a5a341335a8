package registry

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/flatten"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPull(t *testing.T) {
	d := newDouble(t, false)
	img := anImage(t, 5)
	n := d.push(t, "team/tools:1", img)
	var last, total int64
	c, err := client(t, Options{}).Pull(t.Context(), n, t.TempDir(), func(done, of int64) { last, total = done, of })
	if err != nil {
		t.Fatal(err)
	}
	complete(t, c, img)
	digest, err := img.Digest()
	if err != nil || c.Digest != digest.String() {
		t.Errorf("digest %s, want %s (%v)", c.Digest, digest, err)
	}
	if last != total || total == 0 {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	t.Run("by digest", func(t *testing.T) {
		byDigest := parsed(t, d.host+"/team/tools@"+digest.String())
		if c, err := client(t, Options{}).Pull(t.Context(), byDigest, t.TempDir(), nil); err != nil || c.Digest != digest.String() {
			t.Error(err)
		}
	})
	t.Run("by a digest that the registry answers wrongly", func(t *testing.T) {
		other := parsed(t, d.host+"/team/tools@sha256:"+strings.Repeat("ab", 32))
		d.before = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				r.URL.Path = "/v2/team/tools/manifests/1"
			}
			return false
		}
		defer func() { d.before = nil }()
		if _, err := client(t, Options{}).Pull(t.Context(), other, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "does not match") {
			t.Error(err)
		}
	})
	t.Run("not there", func(t *testing.T) {
		_, err := client(t, Options{}).Pull(t.Context(), parsed(t, d.host+"/team/tools:none"), t.TempDir(), nil)
		if err == nil || !strings.Contains(err.Error(), "has no image of that name") {
			t.Error(err)
		}
	})
	t.Run("of here", func(t *testing.T) {
		_, err := client(t, Options{}).Pull(t.Context(), parsed(t, "localhost/tools"), t.TempDir(), nil)
		if err == nil || !strings.Contains(err.Error(), "no registry has") {
			t.Error(err)
		}
	})
}

func TestPlatforms(t *testing.T) {
	d := newDouble(t, false)
	mine := anImage(t, 1)
	foreign := func(arch string) v1.Image {
		img, err := mutate.ConfigFile(mine, configFor(t, mine, arch))
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	index := func(of ...v1.Platform) v1.ImageIndex {
		var idx v1.ImageIndex = empty.Index
		for _, p := range of {
			img := mine
			if p.Architecture != runtime.GOARCH {
				img = foreign(p.Architecture)
			}
			idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
		}
		return idx
	}
	pushIndex := func(tag string, idx v1.ImageIndex) image.Name {
		ref, err := name.ParseReference(d.host+"/multi:"+tag, name.Insecure)
		if err == nil {
			err = remote.WriteIndex(ref, idx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return parsed(t, d.host+"/multi:"+tag)
	}
	both := pushIndex("both", index(v1.Platform{OS: "windows", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "s390x"}, v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	c, err := client(t, Options{}).Pull(t.Context(), both, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, c, mine)
	none := pushIndex("none", index(v1.Platform{OS: "linux", Architecture: "s390x"}, v1.Platform{OS: "linux", Architecture: "riscv64"}))
	if _, err := client(t, Options{}).Pull(t.Context(), none, t.TempDir(), nil); !errors.Is(err, image.ErrUnusable) || !strings.Contains(err.Error(), "only for linux/riscv64, linux/s390x") {
		t.Error(err)
	}
	other := d.push(t, "single:other", foreign("s390x"))
	if _, err := client(t, Options{}).Pull(t.Context(), other, t.TempDir(), nil); !errors.Is(err, image.ErrUnusable) || !strings.Contains(err.Error(), "it is for linux/s390x") {
		t.Error(err)
	}
	chart, err := mutate.AppendLayers(mutate.ConfigMediaType(mine, "application/vnd.cncf.helm.config.v1+json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, Options{}).Pull(t.Context(), d.push(t, "chart:1", chart), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "not a container image") {
		t.Error(err)
	}
	fl, err := mutate.Append(mine, mutate.Addendum{Layer: mustLayer(t), MediaType: types.DockerForeignLayer, URLs: []string{"http://169.254.169.254/latest"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, Options{}).Pull(t.Context(), d.push(t, "foreign:1", fl), t.TempDir(), nil); !errors.Is(err, image.ErrUnusable) {
		t.Error(err)
	}
}

func mustLayer(t *testing.T) v1.Layer {
	l, err := random.Layer(100, types.DockerForeignLayer)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBadAnswers: what a registry answers wrongly never becomes an image, and
// the attempt ends.
func TestBadAnswers(t *testing.T) {
	isBlob := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
	}
	large, err := random.Image(300_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	large, err = mutate.ConfigFile(large, configFor(t, large, runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := large.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	layer := manifest.Layers[0].Digest.String()
	tests := []struct {
		name, want string
		times      int64 // 0: always
		answer     func(d *double, w http.ResponseWriter, r *http.Request) bool
		good       bool
	}{
		{name: "truncated every time", want: "unexpected EOF", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", fmt.Sprint(manifest.Layers[0].Size))
			_, _ = w.Write(make([]byte, 1000))
			return true
		}},
		{name: "truncated once", times: 1, good: true, answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", fmt.Sprint(manifest.Layers[0].Size))
			_, _ = w.Write(make([]byte, 1000))
			return true
		}},
		{name: "corrupted", want: "error verifying sha256", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write(make([]byte, manifest.Layers[0].Size))
			return true
		}},
		{name: "too long", want: "", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write(make([]byte, manifest.Layers[0].Size+100))
			return true
		}},
		{name: "endless", want: "", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return true
				}
			}
			return true
		}},
		{name: "server errors that pass", times: 2, good: true, answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}},
		{name: "rate limit that passes", times: 2, good: true, answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}},
		{name: "rate limit that stays", want: "takes no more requests for now", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}},
		{name: "stalled", want: "nothing arrived for|timeout awaiting response headers", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", fmt.Sprint(manifest.Layers[0].Size))
			_, _ = w.Write(make([]byte, 1000))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		}},
		{name: "no answer", want: "nothing arrived for|timeout awaiting response headers", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		}},
		{name: "redirected to plain http elsewhere", want: "plain http is not allowed", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://registry.example/blob", http.StatusTemporaryRedirect)
			return true
		}},
		{name: "redirected to a file", want: "a registry cannot have the scheme", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusTemporaryRedirect)
			return true
		}},
		{name: "redirected in a circle", want: "more than 10 redirects", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path+"?again", http.StatusTemporaryRedirect)
			return true
		}},
		{name: "another's blob", want: "", answer: func(d *double, w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/v2/x/blobs/"+manifest.Config.Digest.String(), http.StatusTemporaryRedirect)
			return true
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, false)
			n := d.push(t, "x:1", large)
			var asked atomic.Int64
			d.before = func(w http.ResponseWriter, r *http.Request) bool {
				if !isBlob(r) || !strings.Contains(r.URL.Path, layer) {
					return false
				}
				if n := asked.Add(1); tt.times > 0 && n > tt.times {
					return false
				}
				return tt.answer(d, w, r)
			}
			opts := Options{}
			if tt.name == "stalled" || tt.name == "no answer" {
				opts.Stall = 300 * time.Millisecond
			}
			c, err := client(t, opts).Pull(t.Context(), n, t.TempDir(), nil)
			if tt.good {
				if err != nil {
					t.Fatal(err)
				}
				complete(t, c, large)
				return
			}
			// On a busy machine, what comes before may be late already.
			said := func(want string) bool { return err != nil && strings.Contains(err.Error(), want) }
			if !slices.ContainsFunc(strings.Split(tt.want, "|"), said) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestBadDocuments: manifests and configurations are checked before they count.
func TestBadDocuments(t *testing.T) {
	img := anImage(t, 1)
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	edited := func(edit func(*v1.Manifest)) []byte {
		c := m.DeepCopy()
		edit(c)
		raw, _ := json.Marshal(c)
		return raw
	}
	tests := []struct {
		name, want string
		manifest   []byte
		config     []byte
	}{
		{"no manifest", "", []byte("<html>not a registry"), nil},
		{"a huge manifest", "", bytes.Repeat([]byte(" "), 200<<20), nil},
		{"another configuration", "", manifest, []byte(`{"os":"linux","rootfs":{"diff_ids":[]}}`)},
		{"a layer less", "names 1 layers, and its manifest 0", edited(func(m *v1.Manifest) { m.Layers = nil }), nil},
		{"layers of a negative size", "not in order", edited(func(m *v1.Manifest) { m.Layers[0].Size = -1 }), nil},
		{"layers without end", "larger than", edited(func(m *v1.Manifest) { m.Layers[0].Size = 1 << 62 }), nil},
		{"a huge configuration", "", edited(func(m *v1.Manifest) { m.Config.Size = 1 << 40 }), nil},
		{"a layer smaller than it is", "layer sha256:", edited(func(m *v1.Manifest) { m.Layers[0].Size = 10 }), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDouble(t, false)
			n := d.push(t, "x:1", img)
			d.before = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case strings.Contains(r.URL.Path, "/manifests/"):
					w.Header().Set("Content-Type", string(m.MediaType))
					_, _ = w.Write(tt.manifest)
					return true
				case tt.config != nil && strings.HasSuffix(r.URL.Path, m.Config.Digest.String()):
					_, _ = w.Write(tt.config)
					return true
				}
				return false
			}
			if _, err := client(t, Options{}).Pull(t.Context(), n, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestRedirectIsFollowed(t *testing.T) {
	img := anImage(t, 2)
	storage := newDouble(t, false)
	storage.push(t, "x:1", img)
	d := newDouble(t, false)
	n := d.push(t, "x:1", img)
	secret := ""
	storage.before = func(w http.ResponseWriter, r *http.Request) bool {
		secret += r.Header.Get("Authorization")
		return false
	}
	d.before = func(w http.ResponseWriter, r *http.Request) bool {
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "open sesame" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			// Another host of this machine, as far as the client can tell.
			to := strings.Replace(storage.URL, "127.0.0.1", "localhost", 1)
			http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	c, err := client(t, Options{Credentials: authFor(t, d.host, "me", "open sesame")}).Pull(t.Context(), n, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, c, img)
	if secret != "" {
		t.Error("the storage got the registry's credentials")
	}
}

func authFor(t *testing.T, host, user, password string) Credentials {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Credentials{Files: []string{filepath.Join(t.TempDir(), "none"), file}}
}

func TestTokens(t *testing.T) {
	img := anImage(t, 1)
	d := newDouble(t, false)
	n := d.push(t, "team/x:1", img)
	d.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			user, password, ok := r.BasicAuth()
			if !ok || user != "me" || password != "open sesame" || !strings.Contains(r.URL.Query().Get("scope"), "team/x:pull") {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			_, _ = io.WriteString(w, `{"token": "let-me-in"}`)
			return true
		}
		if r.Header.Get("Authorization") != "Bearer let-me-in" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, d.URL))
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	c, err := client(t, Options{Credentials: authFor(t, d.host, "me", "open sesame")}).Pull(t.Context(), n, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, c, img)
	for what, credentials := range map[string]Credentials{"nobody": {}, "a wrong password": authFor(t, d.host, "me", "guess-7391")} {
		_, err := client(t, Options{Credentials: credentials}).Pull(t.Context(), n, t.TempDir(), nil)
		if err == nil || !strings.Contains(err.Error(), "log in with podman login "+d.host) || strings.Contains(err.Error(), "guess-7391") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTransport: plain HTTP is for this machine, and for hosts that a setting
// names; TLS is checked.
func TestTransport(t *testing.T) {
	img := anImage(t, 1)
	secure := newDouble(t, true)
	n := secure.push(t, "x:1", img)
	if _, err := client(t, Options{}).Pull(t.Context(), n, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody signed: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	c, err := client(t, Options{TLS: &tls.Config{RootCAs: pool}}).Pull(t.Context(), n, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, c, img)

	plain := newDouble(t, false)
	plain.push(t, "x:1", img)
	_, port, _ := strings.Cut(plain.host, ":")
	// The same registry by the name of another host.
	elsewhere := func(opts Options) (*image.Content, error) {
		cl := client(t, opts)
		base := cl.transport.(*guard).base.(*http.Transport)
		dial := base.DialContext
		base.DialContext = nil
		base.DialContext = dialTo(dial, plain.host)
		return cl.Pull(t.Context(), parsed(t, "registry.example:"+port+"/x:1"), t.TempDir(), nil)
	}
	if _, err := elsewhere(Options{}); err == nil {
		t.Error("plain HTTP to another host")
	}
	if c, err := elsewhere(Options{PlainHTTP: []string{"*.example"}}); err != nil {
		t.Error(err)
	} else {
		complete(t, c, img)
	}
	private := client(t, Options{})
	if _, err := private.Pull(t.Context(), parsed(t, "10.0.0.1:1/x:1"), t.TempDir(), nil); err == nil || strings.Contains(err.Error(), "has no image") {
		t.Error(err)
	}
}

func TestCancelled(t *testing.T) {
	img := anImage(t, 4)
	d := newDouble(t, false)
	n := d.push(t, "x:1", img)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	d.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && d.blobs.Load() > 2 {
			cancel(why)
			<-r.Context().Done()
			return true
		}
		return false
	}
	if _, err := client(t, Options{}).Pull(ctx, n, t.TempDir(), nil); !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestDigestOfLayers: a manifest may lie about what is in a layer, which is
// found when it is unpacked.
func TestDigestOfLayers(t *testing.T) {
	img := anImage(t, 1)
	c := configFor(t, img, runtime.GOARCH)
	c.RootFS.DiffIDs[0] = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	lying, err := mutate.ConfigFile(img, c)
	if err != nil {
		t.Fatal(err)
	}
	d := newDouble(t, false)
	content, err := client(t, Options{}).Pull(t.Context(), d.push(t, "x:1", lying), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := image.At(t.TempDir(), flatten.Limits{})
	if _, err := store.Add(t.Context(), content, nil); !errors.Is(err, flatten.ErrLayer) || !strings.Contains(err.Error(), "digest") {
		t.Error(err)
	}
}

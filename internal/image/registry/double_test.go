package registry

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	upstream "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sallyport/sallyport/internal/image"
)

// double is a registry on this machine, and what stands before it.
type double struct {
	*httptest.Server
	host   string
	before func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	blobs  atomic.Int64                                      // blobs asked for
}

func newDouble(t *testing.T, secure bool) *double {
	t.Helper()
	d := &double{}
	inner := upstream.New(upstream.Logger(log.New(io.Discard, "", 0)))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/sha256:") && r.Method == http.MethodGet {
			d.blobs.Add(1)
		}
		if d.before == nil || !d.before(w, r) {
			inner.ServeHTTP(w, r)
		}
	})
	d.Server = httptest.NewUnstartedServer(h)
	d.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		d.StartTLS()
	} else {
		d.Start()
	}
	t.Cleanup(d.Close)
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	d.host = u.Host
	return d
}

// anImage is an image for this machine.
func anImage(t *testing.T, layers int) v1.Image {
	t.Helper()
	img, err := random.Image(4000, int64(layers))
	if err == nil {
		img, err = mutate.ConfigFile(img, configFor(t, img, runtime.GOARCH))
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func configFor(t *testing.T, img v1.Image, arch string) *v1.ConfigFile {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	return c
}

func (d *double) push(t *testing.T, repository string, img v1.Image) image.Name {
	t.Helper()
	before := d.before
	d.before = nil
	defer func() { d.before = before }()
	ref, err := name.ParseReference(d.host+"/"+repository, name.Insecure)
	if err == nil {
		err = remote.Write(ref, img, remote.WithTransport(d.Client().Transport))
	}
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, d.host+"/"+repository)
}

func parsed(t *testing.T, text string) image.Name {
	t.Helper()
	n, err := image.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func client(t *testing.T, opts Options) *Client {
	t.Helper()
	if opts.Backoff == 0 {
		opts.Backoff = time.Millisecond
	}
	c := New(opts)
	t.Cleanup(c.Close)
	return c
}

// complete checks that what was pulled is the image, to the last byte.
func complete(t *testing.T, c *image.Content, img v1.Image) {
	t.Helper()
	config, err := img.RawConfigFile()
	if err != nil || !bytes.Equal(config, c.Config) {
		t.Errorf("another configuration: %v", err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != len(c.Layers) {
		t.Fatalf("%d layers, %v", len(c.Layers), err)
	}
	for i, l := range c.Layers {
		want, err := layers[i].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		a, errA := io.ReadAll(want)
		r, err := l.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, errB := io.ReadAll(r)
		want.Close()
		r.Close()
		if errA != nil || errB != nil || !bytes.Equal(a, b) || int64(len(a)) != l.Size {
			t.Errorf("layer %d is another", i)
		}
	}
}

package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/flatten"
)

// Limits on what is read of an image before anything is known about it.
const (
	maxConfig = 8 << 20
	maxLayers = 512
	attempts  = 3
	parallel  = 3
)

// Pull downloads an image into files below dir, which exists. progress, which
// may be nil, receives how many bytes of the layers have arrived.
func (c *Client) Pull(ctx context.Context, n image.Name, dir string, progress func(done, total int64)) (*image.Content, error) {
	content, err := c.pull(ctx, n, dir, progress)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, explain(n, err)
	}
	return content, nil
}

func (c *Client) pull(ctx context.Context, n image.Name, dir string, progress func(done, total int64)) (*image.Content, error) {
	ref := n.Reference()
	if n.Local() || ref == nil {
		return nil, errors.New("it is a name for images that are made here, which no registry has")
	}
	if host, _, err := net.SplitHostPort(ref.Context().RegistryStr()); err == nil && c.opts.plain(host) || c.opts.plain(ref.Context().RegistryStr()) {
		insecure, err := name.ParseReference(ref.Name(), name.Insecure)
		if err != nil {
			return nil, err
		}
		ref = insecure
	}
	auth, err := c.opts.Credentials.find(ctx, ref.Context().RegistryStr(), ref.Context().RepositoryStr())
	if err != nil {
		return nil, err
	}
	options := []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(c.transport),
		remote.WithAuth(authn.FromConfig(auth)),
		remote.WithUserAgent(c.opts.UserAgent),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithRetryBackoff(remote.Backoff{Duration: c.opts.Backoff, Factor: 3, Jitter: 0.1, Steps: attempts}),
		remote.WithRetryStatusCodes(http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout),
	}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	img, err := chosen(found)
	if err != nil {
		return nil, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	if err := check(manifest, c.opts.MaxBytes); err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	if got := image.ID(config); got != manifest.Config.Digest.String() {
		return nil, fmt.Errorf("%w: its configuration has the digest %s, and should have %s", flatten.ErrLayer, got, manifest.Config.Digest)
	}
	diffs, err := image.DiffIDs(config)
	if err != nil {
		return nil, err
	}
	if len(diffs) != len(manifest.Layers) {
		return nil, fmt.Errorf("%w: its configuration names %d layers, and its manifest %d", flatten.ErrLayer, len(diffs), len(manifest.Layers))
	}
	content := &image.Content{Config: config, Digest: found.Digest.String()}
	content.Layers, err = c.layers(ctx, img, manifest, dir, progress)
	return content, err
}

// chosen returns the image for this machine's platform.
func chosen(found *remote.Descriptor) (v1.Image, error) {
	if !found.MediaType.IsIndex() {
		if !found.MediaType.IsImage() {
			return nil, fmt.Errorf("it is not an image but %q", found.MediaType)
		}
		return found.Image()
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	digest, err := image.ChoosePlatform(list)
	if err != nil {
		return nil, err
	}
	return index.Image(digest)
}

// check refuses manifests that are not images, or have an unreasonable size.
func check(m *v1.Manifest, most int64) error {
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("it is not a container image but %q", m.Config.MediaType)
	}
	if m.Config.Size > maxConfig || len(m.Layers) > maxLayers {
		return fmt.Errorf("%w: a configuration of %d bytes, and %d layers", flatten.ErrLayer, m.Config.Size, len(m.Layers))
	}
	var total int64
	for _, l := range m.Layers {
		if !l.MediaType.IsLayer() || len(l.URLs) > 0 || !l.MediaType.IsDistributable() {
			return fmt.Errorf("%w: it has a layer that is not for Linux containers (%s)", image.ErrUnusable, l.MediaType)
		}
		if total += l.Size; l.Size < 0 || total > most || total < 0 {
			return fmt.Errorf("%w: its layers are larger than %d MiB, which images.maxSize allows", flatten.ErrLayer, most>>20)
		}
	}
	return nil
}

// layers downloads the layers into files, several at a time.
func (c *Client) layers(ctx context.Context, img v1.Image, manifest *v1.Manifest, dir string, progress func(done, total int64)) ([]flatten.Layer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var total int64
	for _, l := range manifest.Layers {
		total += l.Size
	}
	tell := &meter{total: total, tell: progress}
	out := make([]flatten.Layer, len(manifest.Layers))
	var all sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, desc := range manifest.Layers {
		file := filepath.Join(dir, fmt.Sprintf("layer-%d", i))
		out[i] = flatten.Layer{Name: desc.Digest.String(), Size: desc.Size, Open: func() (io.ReadCloser, error) { return os.Open(file) }}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() == nil {
				if err := c.layer(ctx, img, desc, file, tell); err != nil {
					cancel(fmt.Errorf("layer %s: %w", desc.Digest, err))
				}
			}
		})
	}
	all.Wait()
	return out, context.Cause(ctx)
}

// layer downloads one layer, and retries if the connection failed.
func (c *Client) layer(ctx context.Context, img v1.Image, desc v1.Descriptor, file string, tell *meter) error {
	wait := c.opts.Backoff
	for try := 1; ; try++ {
		n, err := fetch(ctx, img, desc, file, tell)
		if err == nil {
			return nil
		}
		tell.add(-n)
		var machine *fs.PathError
		if try == attempts || ctx.Err() != nil || errors.Is(err, flatten.ErrLayer) || errors.As(err, &machine) || errors.Is(err, errPlain) || errors.Is(err, errDowngrade) || errors.Is(err, errRedirects) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		wait *= 3
	}
}

// fetch writes a layer into the file and checks its size and digest.
func fetch(ctx context.Context, img v1.Image, desc v1.Descriptor, file string, tell *meter) (n int64, err error) {
	l, err := img.LayerByDigest(desc.Digest)
	if err != nil {
		return 0, err
	}
	r, err := l.Compressed()
	if err != nil {
		return 0, err
	}
	// Reading ends when the caller gives up, whatever the other side does.
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	defer r.Close()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	sum := sha256.New()
	n, err = io.Copy(io.MultiWriter(f, sum, tell), io.LimitReader(r, desc.Size+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	if n < desc.Size {
		return n, io.ErrUnexpectedEOF // the connection's fault: worth another try
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); n != desc.Size || got != desc.Digest.String() {
		return n, fmt.Errorf("%w: %d bytes with the digest %s arrived, and should be %d", flatten.ErrLayer, n, got, desc.Size)
	}
	return n, nil
}

// meter reports the progress of several downloads together.
type meter struct {
	done  atomic.Int64
	total int64
	mu    sync.Mutex
	tell  func(done, total int64)
}

func (m *meter) Write(p []byte) (int, error) {
	m.add(int64(len(p)))
	return len(p), nil
}

func (m *meter) add(n int64) {
	m.done.Add(n)
	if m.tell != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.tell(m.done.Load(), m.total)
	}
}

// explain adds advice to the error of a pull.
func explain(n image.Name, err error) error {
	var answer *transport.Error
	what := ""
	host := strings.SplitN(n.Full, "/", 2)[0]
	if errors.As(err, &answer) {
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			what = fmt.Sprintf("the registry does not let you have it, or there is no image of that name: log in with podman login %s or docker login %s", host, host)
		case http.StatusNotFound:
			what = "the registry has no image of that name"
		case http.StatusTooManyRequests:
			what = "the registry takes no more requests for now: wait, or log in to be allowed more"
		}
	}
	if what == "" {
		return fmt.Errorf("pulling %s: %w", n.Full, err)
	}
	return fmt.Errorf("pulling %s: %s (%w)", n.Full, what, err)
}

package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageName = "ghcr.io/sallyport/sallyport"
	imageUser = 65532
	imageHome = "home/sallyport"
	sticky    = fs.ModeSticky
)

// image writes an OCI image for Linux as an archive of its layout.
//
// It has the executable, certificates and nothing else, so that another image
// can take the executable from it (COPY --from), and so that nothing in it needs
// updates. Alone it serves MCP: code runs in an image with Python, which Sallyport
// fetches at the first start without a container engine.
func (r *release) image() error {
	python, err := r.pythonImage()
	if err != nil {
		return err
	}
	var index v1.ImageIndex = empty.Index
	for _, p := range r.programs {
		if p.system != "linux" {
			continue
		}
		image, err := r.imageOf(p, python)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: p.arch},
		}})
	}
	// One entry, which names the image for containerd and for Podman.
	index = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		Annotations: map[string]string{
			"org.opencontainers.image.ref.name": imageName + ":" + r.version.String(),
			"io.containerd.image.name":          imageName + ":" + r.version.String(),
		},
	}})
	place, err := os.MkdirTemp("", "sallyport-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	if _, err := layout.Write(place, index); err != nil {
		return err
	}
	files, err := readTree(place)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := writeTar(&packed, files, r.time); err != nil {
		return err
	}
	return r.write("sallyport_"+r.version.String()+"_oci.tar", packed.Bytes())
}

var pythonImage = regexp.MustCompile(`(?m)^ARG PYTHON_IMAGE=(\S+@sha256:[0-9a-f]{64})$`)

// pythonImage is the image of the worker's Dockerfile: one place to update.
func (r *release) pythonImage() (string, error) {
	dockerfile, err := r.read("deploy/runpod/Dockerfile")
	if err != nil {
		return "", err
	}
	m := pythonImage.FindSubmatch(dockerfile)
	if m == nil {
		return "", fmt.Errorf("deploy/runpod/Dockerfile has no PYTHON_IMAGE with a digest")
	}
	return "docker.io/library/" + string(m[1]), nil
}

func (r *release) imageOf(p program, python string) (v1.Image, error) {
	files := []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nsallyport:x:%d:\n", imageUser)},
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0::/:/nologin\nsallyport:x:%d:%d::/%s:/nologin\n", imageUser, imageUser, imageHome)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()},
		{imageHome + "/", 0o700, nil},
		{"tmp/", 0o777 | sticky, nil},
		{"usr/bin/sallyport", 0o755, p.data},
	}
	for _, f := range r.shared {
		if f.name == "LICENSE" || f.name == "NOTICE" {
			files = append(files, file{"usr/share/doc/sallyport/" + f.name, f.mode, f.data})
		}
	}
	var packed bytes.Buffer
	if err := writeTar(&packed, files, r.time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: r.time}, CreatedBy: "scripts/release",
	}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
		WorkingDir: "/" + imageHome,
		Env:        []string{"PATH=/usr/bin", "HOME=/" + imageHome, "SALLYPORT_IMAGE=" + python},
		Entrypoint: []string{"/usr/bin/sallyport"},
		Cmd:        []string{"serve"},
		Volumes:    map[string]struct{}{"/" + imageHome: {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "Sallyport",
			"org.opencontainers.image.description": summary,
			"org.opencontainers.image.source":      project,
			"org.opencontainers.image.version":     r.version.String(),
			"org.opencontainers.image.revision":    r.commit,
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"io.modelcontextprotocol.server.name":  registry,
		},
	}
	return mutate.ConfigFile(image, config)
}

// certificates are the authorities that Mozilla trusts for servers, without
// those that it trusts in part.
func certificates() []byte {
	var list bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		// Writing to memory never fails.
		_ = pem.Encode(&list, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
	}
	return list.Bytes()
}

// readTree reads the files below a directory, in the order of their paths.
func readTree(top string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		files = append(files, file{filepath.ToSlash(name), 0o644, data})
		return err
	})
	return files, err
}

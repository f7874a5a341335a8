package cli_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sallyport/sallyport/internal/image/flatten"
)

// condition knows what a script may ask for: pip is a Python with pip, root is
// a test that runs as root.
func condition(what string) (bool, error) {
	switch what {
	case "pip":
		return exec.Command("python3", "-c", "import pip").Run() == nil, nil
	case "npm": // $NPM has the official servers
		return os.Getenv("SALLYPORT_NPM_DIR") != "", nil
	case "root":
		return os.Geteuid() == 0, nil
	}
	return false, fmt.Errorf("there is no condition %q", what)
}

// serveRegistry serves an image with the files of a directory from a registry on
// this machine, for one user, and names it in $REGISTRY:
//
//	registry DIR REPOSITORY:TAG USER:PASSWORD
func serveRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: registry DIR REPOSITORY:TAG USER:PASSWORD")
	}
	user, password, _ := strings.Cut(args[2], ":")
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); user != "" && (!ok || u != user || p != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	ts.Defer(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	var packed bytes.Buffer
	ts.Check(flatten.Pack(context.Background(), &packed, ts.MkAbs(args[0])))
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	ts.Check(err)
	img, err := mutate.AppendLayers(empty.Image, layer)
	ts.Check(err)
	config, err := img.ConfigFile()
	ts.Check(err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "SECRET=1"}, Entrypoint: []string{"/bin/false"}, User: "nobody"}
	img, err = mutate.ConfigFile(img, config)
	ts.Check(err)
	ref, err := name.ParseReference(host+"/"+args[1], name.Insecure)
	ts.Check(err)
	ts.Check(remote.Write(ref, img, remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: user, Password: password}))))
	ts.Setenv("REGISTRY", host)
}

// writeWheel writes a wheel with one module: wheel DIR NAME VERSION TEXT.
func writeWheel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: wheel DIR NAME VERSION TEXT")
	}
	dir, module, version, text := ts.MkAbs(args[0]), args[1], args[2], strings.ReplaceAll(args[3], `\n`, "\n")
	ts.Check(os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", module, version)))
	ts.Check(err)
	w := zip.NewWriter(f)
	info := fmt.Sprintf("%s-%s.dist-info/", module, version)
	for name, content := range map[string]string{
		module + ".py":            text,
		info + "METADATA":         fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", module, version),
		info + "WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "entry_points.txt": fmt.Sprintf("[console_scripts]\n%s-program = %s:main\n", module, module),
		info + "RECORD":           "",
	} {
		m, err := w.Create(name)
		ts.Check(err)
		_, err = io.WriteString(m, content)
		ts.Check(err)
	}
	ts.Check(w.Close())
	ts.Check(f.Close())
}

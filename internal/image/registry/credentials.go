package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Credentials tells where to find the user's credentials.
type Credentials struct {
	// Files are auth files in the forms of Docker and Podman. The first one
	// with an entry for a registry is used; missing files are skipped.
	Files []string
	// Path is searched for credential helpers, like the environment variable
	// PATH.
	Path string
	// Environ is the environment that helpers get.
	Environ []string
}

// authFile has the used fields of an auth file.
type authFile struct {
	Auths map[string]struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
	CredHelpers map[string]string `json:"credHelpers"`
	CredsStore  string            `json:"credsStore"`
}

const (
	maxAuthFile   = 1 << 20
	helperTimeout = time.Minute // it may ask the user
)

// hub are the names that auth files have for Docker Hub.
const (
	hubHost = "index.docker.io"
	hubKey  = "https://index.docker.io/v1/"
)

// find returns the credentials for a repository ("registry/path"), or anonymous
// ones.
func (c Credentials) find(ctx context.Context, registry, repository string) (authn.AuthConfig, error) {
	for _, file := range c.Files {
		if file == "" {
			continue
		}
		f, err := readAuthFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return authn.AuthConfig{}, err
		}
		found, ok, err := c.findIn(ctx, f, registry, repository)
		if err != nil {
			return found, fmt.Errorf("%s: %w", file, err)
		}
		if ok {
			return found, nil
		}
	}
	return authn.AuthConfig{}, nil
}

func readAuthFile(file string) (*authFile, error) {
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, maxAuthFile))
	if err != nil {
		return nil, err
	}
	var f authFile
	if json.Unmarshal(raw, &f) != nil {
		// Not the error itself, which may quote a secret.
		return nil, fmt.Errorf("%s: not an auth file in the form of Docker or Podman", file)
	}
	return &f, nil
}

func (c Credentials) findIn(ctx context.Context, f *authFile, registry, repository string) (authn.AuthConfig, bool, error) {
	names := []string{registry}
	if registry == hubHost {
		names = []string{"docker.io", hubHost, "registry-1.docker.io"}
	}
	for _, name := range names {
		key := name
		if registry == hubHost {
			key = hubKey
		}
		if helper := f.CredHelpers[name]; helper != "" {
			found, err := c.ask(ctx, helper, key)
			return found, found != authn.AuthConfig{}, err
		}
	}
	for _, key := range keys(names, repository) {
		entry, ok := f.Auths[key]
		if !ok {
			continue
		}
		found := authn.AuthConfig{
			Username: entry.Username, Password: entry.Password,
			IdentityToken: entry.IdentityToken, RegistryToken: entry.RegistryToken,
		}
		if entry.Auth != "" {
			raw, err := base64.StdEncoding.DecodeString(entry.Auth)
			user, password, colon := strings.Cut(strings.TrimRight(string(raw), "\x00"), ":")
			if err != nil || !colon {
				return found, false, fmt.Errorf("the entry of %s is not in order: log in again", key)
			}
			found.Username, found.Password = user, password
		}
		if found != (authn.AuthConfig{}) {
			return found, true, nil
		}
	}
	if f.CredsStore != "" {
		key := registry
		if registry == hubHost {
			key = hubKey
		}
		found, err := c.ask(ctx, f.CredsStore, key)
		return found, found != authn.AuthConfig{}, err
	}
	return authn.AuthConfig{}, false, nil
}

// keys are what auth files may call a repository, from the most to the least
// particular: Podman's have parts of its path, Docker's have URLs.
func keys(names []string, repository string) []string {
	var out []string
	for _, name := range names {
		for rest := repository; ; {
			out = append(out, strings.TrimSuffix(name+"/"+rest, "/"))
			if rest == "" {
				break
			}
			i := strings.LastIndexByte(rest, '/')
			rest = rest[:max(i, 0)]
		}
	}
	for _, name := range names {
		for _, scheme := range []string{"https://", "http://"} {
			for _, end := range []string{"", "/", "/v1/", "/v2/", "/v1", "/v2"} {
				out = append(out, scheme+name+end)
			}
		}
	}
	return out
}

var helperName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ask asks a credential helper.
func (c Credentials) ask(ctx context.Context, helper, key string) (authn.AuthConfig, error) {
	var none authn.AuthConfig
	if !helperName().MatchString(helper) {
		return none, fmt.Errorf("%q is not the name of a credential helper", helper)
	}
	program, err := lookPath("docker-credential-"+helper, c.Path)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "get")
	cmd.Env = c.Environ
	cmd.Stdin = strings.NewReader(key)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &limited{b: &out, left: maxAuthFile}
	if err := cmd.Run(); err != nil {
		// It reports that on its standard output. Anything else that it writes
		// may be a secret.
		if strings.Contains(out.String(), "credentials not found") {
			return none, nil
		}
		return none, fmt.Errorf("the credential helper docker-credential-%s failed: %w", helper, err)
	}
	var answer struct{ Username, Secret string }
	if json.Unmarshal(out.Bytes(), &answer) != nil {
		return none, fmt.Errorf("the credential helper docker-credential-%s gave no answer that can be read", helper)
	}
	if answer.Username == "<token>" {
		return authn.AuthConfig{IdentityToken: answer.Secret}, nil
	}
	return authn.AuthConfig{Username: answer.Username, Password: answer.Secret}, nil
}

// lookPath is exec.LookPath over a given path without relative entries.
func lookPath(name, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("the credential helper %s is not in the search path", name)
}

// limited keeps the first bytes of what is written.
type limited struct {
	b    *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := min(len(p), l.left)
	l.left -= keep
	l.b.Write(p[:keep])
	return len(p), nil
}

// Package secret reads the keys and tokens that a definition names and does not
// hold: from files, and from the keyring of the operating system (the Keychain
// of macOS, the Credential Manager of Windows, the Secret Service of Linux). It
// also keeps the program's own keys in that keyring.
package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	// Service is what entries of the keyring belong to.
	Service = "sallyport"
	// maxSecret bounds a secret in bytes.
	maxSecret = 64 << 10
	maxName   = 1 << 10
)

// Reader reads secrets for one client. Its methods are safe for concurrent use.
type Reader struct {
	// Bus is the address of the client's D-Bus, where Linux has a user's keyring. The
	// process's own is never used in its place.
	Bus string
	// Keyring returns the secret of a service's account; nil: the system's.
	Keyring func(service, account string) (string, error)
}

// Read returns a secret: kind "file" and an absolute path, or kind "keyring"
// and the name of an entry: an account of Service, or else, as SERVICE/ACCOUNT,
// one of another service. Errors hold nothing of a secret.
func (r Reader) Read(ctx context.Context, kind, name string) (string, error) {
	var value string
	var err error
	switch kind {
	case "file":
		value, err = readFile(name)
	case "keyring":
		value, err = r.keyring(ctx, name)
	default:
		return "", fmt.Errorf("there are no secrets of the kind %q", kind)
	}
	switch {
	case err != nil:
		return "", err
	case len(value) > maxSecret:
		return "", fmt.Errorf("the secret is longer than %d bytes", maxSecret)
	case strings.TrimSpace(value) == "":
		return "", errors.New("the secret is empty")
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return "", errors.New("the secret is not text")
	}
	return value, nil
}

func readFile(name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", errors.New("the path is not absolute")
	}
	// Check before opening, so that a named pipe cannot block.
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	return string(data), err
}

func (r Reader) keyring(ctx context.Context, name string) (string, error) {
	if name == "" || len(name) > maxName {
		return "", errors.New("no entry of a keyring has such a name")
	}
	return within(ctx, func(ctx context.Context) (string, error) {
		get := r.Keyring
		if get == nil {
			get = func(service, account string) (string, error) { return system(ctx, r.Bus, service, account) }
		}
		value, err := get(Service, name)
		service, account, ok := strings.Cut(name, "/")
		if errors.Is(err, fs.ErrNotExist) && ok && service != "" && account != "" {
			value, err = get(service, account)
		}
		return value, explain(err, name)
	})
}

// Package secret reads the keys and tokens that a definition names and does not
// hold: from files, and from the keyring of the operating system (the Keychain
// of macOS, the Credential Manager of Windows, the Secret Service of Linux).
package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zalando/go-keyring"
)

const (
	// Service is what entries of the keyring belong to.
	Service = "sallyport"
	// maxSecret bounds a secret in bytes.
	maxSecret = 64 << 10
	maxName   = 1 << 10
	// keyringTimeout is how long a keyring may take, which may have to ask the
	// user to be unlocked.
	keyringTimeout = time.Minute
)

// Reader reads secrets. The zero value uses the keyring of the system. Its
// methods are safe for concurrent use.
type Reader struct {
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
	get := r.Keyring
	if get == nil {
		get = keyring.Get
	}
	type found struct {
		value string
		err   error
	}
	// The keyring's own calls cannot be interrupted: one that hangs is left.
	answer := make(chan found, 1)
	go func() {
		value, err := get(Service, name)
		service, account, ok := strings.Cut(name, "/")
		if errors.Is(err, keyring.ErrNotFound) && ok && service != "" && account != "" {
			value, err = get(service, account)
		}
		answer <- found{value, err}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, keyringTimeout, fmt.Errorf("the keyring did not answer within %s", keyringTimeout))
	defer cancel()
	select {
	case f := <-answer:
		switch {
		case errors.Is(f.err, keyring.ErrNotFound):
			return "", fmt.Errorf("the keyring has no entry for service %q, account %q", Service, name)
		case errors.Is(f.err, keyring.ErrUnsupportedPlatform):
			return "", errors.New("there is no keyring on this system that Sallyport knows: use a file or a variable")
		case f.err != nil:
			return "", fmt.Errorf("the keyring cannot be read (on Linux it needs a Secret Service, such as GNOME Keyring or KWallet, on the session's D-Bus): %w", f.err)
		}
		return f.value, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

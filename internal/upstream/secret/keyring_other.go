//go:build !linux

package secret

import (
	"context"
	"errors"

	"github.com/zalando/go-keyring"
)

// system reads an entry of the system's keyring.
func system(_ context.Context, _, service, account string) (string, error) {
	value, err := keyring.Get(service, account)
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		err = errNotFound
	case errors.Is(err, keyring.ErrUnsupportedPlatform):
		err = errUnsupported
	}
	return value, err
}

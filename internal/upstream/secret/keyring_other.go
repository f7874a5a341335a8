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
	return value, translate(err)
}

// setSystem creates or replaces an entry of the system's keyring.
func setSystem(_ context.Context, _, service, account, value string) error {
	return translate(keyring.Set(service, account, value))
}

func translate(err error) error {
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return errNotFound
	case errors.Is(err, keyring.ErrUnsupportedPlatform):
		return errUnsupported
	}
	return err
}

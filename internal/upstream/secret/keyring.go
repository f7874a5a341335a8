package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// keyringTimeout is how long a keyring may take, which may have to ask the user to
// be unlocked.
const keyringTimeout = time.Minute

// Errors of a keyring.
var (
	errNotFound    = fmt.Errorf("the keyring has no such entry: %w", fs.ErrNotExist)
	errUnsupported = kind{"there is no keyring on this system that Sallyport knows: use a file or a variable", errors.ErrUnsupported}
)

// kind is an error that is of a kind, which its message does not mention.
type kind struct {
	message string
	of      error
}

func (k kind) Error() string { return k.message }
func (k kind) Unwrap() error { return k.of }

// Keyring has the entries of Service in a client's keyring. Its methods are safe for
// concurrent use. Errors hold nothing of a secret. They wrap errors.ErrUnsupported
// if there is no keyring.
type Keyring struct {
	// Bus is the address of the client's D-Bus, as in [Reader].
	Bus string
}

// Get returns the secret of an account. The error wraps fs.ErrNotExist if there is
// no such entry.
func (k Keyring) Get(ctx context.Context, account string) (string, error) {
	return within(ctx, func(ctx context.Context) (string, error) {
		value, err := system(ctx, k.Bus, Service, account)
		return value, explain(err, account)
	})
}

// Set creates or replaces the secret of an account.
func (k Keyring) Set(ctx context.Context, account, value string) error {
	_, err := within(ctx, func(ctx context.Context) (string, error) {
		return "", explain(setSystem(ctx, k.Bus, Service, account, value), account)
	})
	return err
}

// explain returns a keyring's error with what the user can do.
func explain(err error, account string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return kind{fmt.Sprintf("the keyring has no entry for service %q, account %q", Service, account), fs.ErrNotExist}
	case err != nil && !errors.Is(err, errUnsupported):
		return fmt.Errorf("the keyring cannot be used (on Linux it needs a Secret Service, such as GNOME Keyring or KWallet, on the session's D-Bus): %w", err)
	}
	return err
}

// within calls a function of the keyring, which has a time limit. Not every
// keyring's calls can be interrupted: one that hangs is left.
func within(ctx context.Context, call func(context.Context) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, keyringTimeout, fmt.Errorf("the keyring did not answer within %s", keyringTimeout))
	defer cancel()
	type found struct {
		value string
		err   error
	}
	answer := make(chan found, 1)
	go func() {
		value, err := call(ctx)
		answer <- found{value, err}
	}()
	select {
	case f := <-answer:
		return f.value, f.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

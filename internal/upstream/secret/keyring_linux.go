package secret

import (
	"context"
	"errors"

	"github.com/godbus/dbus/v5"
)

const (
	bus      = "org.freedesktop.secrets"
	secrets  = "org.freedesktop.Secret.Service."
	item     = "org.freedesktop.Secret.Item."
	prompt   = "org.freedesktop.Secret.Prompt"
	noPrompt = dbus.ObjectPath("/")
)

// system reads an entry of the Secret Service on the D-Bus at this address.
//
// Protocol: https://specifications.freedesktop.org/secret-service-spec/0.2.
func system(ctx context.Context, address, service, account string) (string, error) {
	if address == "" {
		return "", errors.New("the client has no session's D-Bus: DBUS_SESSION_BUS_ADDRESS is not set")
	}
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	s := secretService{conn, conn.Object(bus, "/org/freedesktop/secrets")}
	var none dbus.Variant
	var session dbus.ObjectPath
	if err := s.CallWithContext(ctx, secrets+"OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&none, &session); err != nil {
		return "", err
	}
	var unlocked, locked []dbus.ObjectPath
	about := map[string]string{"service": service, "username": account}
	if err := s.CallWithContext(ctx, secrets+"SearchItems", 0, about).Store(&unlocked, &locked); err != nil {
		return "", err
	}
	if len(unlocked) == 0 {
		if len(locked) == 0 {
			return "", errNotFound
		}
		if err := s.unlock(ctx, locked[0]); err != nil {
			return "", err
		}
		unlocked = locked
	}
	var found struct {
		Session           dbus.ObjectPath
		Parameters, Value []byte
		ContentType       string
	}
	err = conn.Object(bus, unlocked[0]).CallWithContext(ctx, item+"GetSecret", 0, session).Store(&found)
	return string(found.Value), err
}

type secretService struct {
	conn *dbus.Conn
	dbus.BusObject
}

// unlock unlocks an entry, for which the keyring may ask the user.
func (s secretService) unlock(ctx context.Context, entry dbus.ObjectPath) error {
	var done []dbus.ObjectPath
	var asks dbus.ObjectPath
	if err := s.CallWithContext(ctx, secrets+"Unlock", 0, []dbus.ObjectPath{entry}).Store(&done, &asks); err != nil || asks == noPrompt {
		return err
	}
	if err := s.conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(asks), dbus.WithMatchInterface(prompt)); err != nil {
		return err
	}
	answers := make(chan *dbus.Signal, 1)
	s.conn.Signal(answers)
	if err := s.conn.Object(bus, asks).CallWithContext(ctx, prompt+".Prompt", 0, "").Err; err != nil {
		return err
	}
	for {
		select {
		case answer, ok := <-answers:
			if !ok {
				return dbus.ErrClosed
			}
			if answer.Path != asks || answer.Name != prompt+".Completed" || len(answer.Body) == 0 {
				continue
			}
			if dismissed, _ := answer.Body[0].(bool); dismissed {
				return errors.New("it was not unlocked")
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

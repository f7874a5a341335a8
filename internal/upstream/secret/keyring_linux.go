package secret

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"
)

const (
	bus        = "org.freedesktop.secrets"
	secrets    = "org.freedesktop.Secret.Service."
	collection = "org.freedesktop.Secret.Collection."
	item       = "org.freedesktop.Secret.Item."
	prompt     = "org.freedesktop.Secret.Prompt"
	noObject   = dbus.ObjectPath("/")
)

// secretService is a connection to the Secret Service of a session.
//
// Protocol: https://specifications.freedesktop.org/secret-service-spec/0.2.
type secretService struct {
	conn *dbus.Conn
	dbus.BusObject
	session dbus.ObjectPath
}

// dbusSecret is a secret as it is transferred.
type dbusSecret struct {
	Session           dbus.ObjectPath
	Parameters, Value []byte
	ContentType       string
}

// open connects to the Secret Service on the D-Bus at this address.
func open(ctx context.Context, address string) (*secretService, error) {
	if address == "" {
		return nil, kind{"the client has no session's D-Bus: DBUS_SESSION_BUS_ADDRESS is not set", errors.ErrUnsupported}
	}
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, kind{err.Error(), errors.ErrUnsupported}
	}
	s := &secretService{conn: conn, BusObject: conn.Object(bus, "/org/freedesktop/secrets")}
	var none dbus.Variant
	err = s.CallWithContext(ctx, secrets+"OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&none, &s.session)
	if err != nil {
		conn.Close()
		var answer dbus.Error
		if errors.As(err, &answer) && (answer.Name == "org.freedesktop.DBus.Error.ServiceUnknown" || answer.Name == "org.freedesktop.DBus.Error.NameHasNoOwner") {
			err = kind{err.Error(), errors.ErrUnsupported}
		}
		return nil, err
	}
	return s, nil
}

func about(service, account string) map[string]string {
	return map[string]string{"service": service, "username": account}
}

// system reads an entry of the Secret Service on the D-Bus at this address.
func system(ctx context.Context, address, service, account string) (string, error) {
	s, err := open(ctx, address)
	if err != nil {
		return "", err
	}
	defer s.conn.Close()
	var unlocked, locked []dbus.ObjectPath
	if err := s.CallWithContext(ctx, secrets+"SearchItems", 0, about(service, account)).Store(&unlocked, &locked); err != nil {
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
	var found dbusSecret
	err = s.conn.Object(bus, unlocked[0]).CallWithContext(ctx, item+"GetSecret", 0, s.session).Store(&found)
	return string(found.Value), err
}

// setSystem creates or replaces an entry of the Secret Service's default collection.
func setSystem(ctx context.Context, address, service, account, value string) error {
	s, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer s.conn.Close()
	var into dbus.ObjectPath
	if err := s.CallWithContext(ctx, secrets+"ReadAlias", 0, "default").Store(&into); err != nil {
		return err
	}
	if into == noObject {
		return kind{"the keyring has no default collection", errors.ErrUnsupported}
	}
	if err := s.unlock(ctx, into); err != nil {
		return err
	}
	properties := map[string]dbus.Variant{
		item + "Label":      dbus.MakeVariant(fmt.Sprintf("%s: %s", service, account)),
		item + "Attributes": dbus.MakeVariant(about(service, account)),
	}
	var made, asks dbus.ObjectPath
	secret := dbusSecret{s.session, []byte{}, []byte(value), "text/plain; charset=utf8"}
	if err := s.conn.Object(bus, into).CallWithContext(ctx, collection+"CreateItem", 0, properties, secret, true).Store(&made, &asks); err != nil {
		return err
	}
	return s.ask(ctx, asks)
}

// unlock unlocks an entry or a collection, for which the keyring may ask the user.
func (s *secretService) unlock(ctx context.Context, object dbus.ObjectPath) error {
	var done []dbus.ObjectPath
	var asks dbus.ObjectPath
	if err := s.CallWithContext(ctx, secrets+"Unlock", 0, []dbus.ObjectPath{object}).Store(&done, &asks); err != nil {
		return err
	}
	return s.ask(ctx, asks)
}

// ask has the keyring ask the user, if there is something to ask.
func (s *secretService) ask(ctx context.Context, asks dbus.ObjectPath) error {
	if asks == noObject {
		return nil
	}
	if err := s.conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(asks), dbus.WithMatchInterface(prompt)); err != nil {
		return err
	}
	answers := make(chan *dbus.Signal, 1)
	s.conn.Signal(answers)
	defer s.conn.RemoveSignal(answers)
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

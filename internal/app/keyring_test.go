//go:build linux

package app

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
	"github.com/sallyport/sallyport/internal/upstream/secret"
)

// keyring stands in for the Secret Service of a session.
type keyring struct {
	conn    *dbus.Conn
	value   string
	locked  bool
	refuses bool // the user does not unlock it
	account string
}

const keyringPath = "/org/freedesktop/secrets"

// serve puts the keyring on a bus of its own, whose address it returns.
func (k *keyring) serve(t *testing.T) string {
	t.Helper()
	address := sandboxtest.Bus(t)
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	k.conn = conn
	for path, what := range map[dbus.ObjectPath]string{keyringPath: "Service", keyringPath + "/default": "Collection", keyringPath + "/item": "Item", keyringPath + "/prompt": "Prompt"} {
		if err := conn.Export(k, path, "org.freedesktop.Secret."+what); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.RequestName("org.freedesktop.secrets", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return address
}

func (k *keyring) OpenSession(string, dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	return dbus.MakeVariant(""), keyringPath + "/session", nil
}

func (k *keyring) SearchItems(about map[string]string) (unlocked, locked []dbus.ObjectPath, _ *dbus.Error) {
	found := []dbus.ObjectPath{keyringPath + "/item"}
	switch {
	case about["service"] != "sallyport" || about["username"] != cmp.Or(k.account, "token"):
		return nil, nil, nil
	case k.locked:
		return nil, found, nil
	}
	return found, nil, nil
}

func (k *keyring) Unlock([]dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	return nil, keyringPath + "/prompt", nil
}

func (k *keyring) ReadAlias(string) (dbus.ObjectPath, *dbus.Error) {
	return keyringPath + "/default", nil
}

func (k *keyring) CreateItem(properties map[string]dbus.Variant, secret keyringSecret, _ bool) (dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	about, _ := properties["org.freedesktop.Secret.Item.Attributes"].Value().(map[string]string)
	if k.locked || about["service"] != "sallyport" {
		return "/", "/", dbus.NewError("org.freedesktop.Secret.Error.IsLocked", nil)
	}
	k.account, k.value = about["username"], string(secret.Value)
	return keyringPath + "/item", "/", nil
}

func (k *keyring) Prompt(string) *dbus.Error {
	k.locked = k.refuses // before its answer, after which the secret is read
	if err := k.conn.Emit(keyringPath+"/prompt", "org.freedesktop.Secret.Prompt.Completed", k.refuses, dbus.MakeVariant("")); err != nil {
		return dbus.MakeFailedError(err)
	}
	return nil
}

type keyringSecret struct {
	Session           dbus.ObjectPath
	Parameters, Value []byte
	ContentType       string
}

func (k *keyring) GetSecret(session dbus.ObjectPath) (keyringSecret, *dbus.Error) {
	if k.locked {
		return keyringSecret{}, dbus.NewError("org.freedesktop.Secret.Error.IsLocked", nil)
	}
	return keyringSecret{Session: session, Value: []byte(k.value), ContentType: "text/plain"}, nil
}

// TestKeyringsOfClients: a secret of a definition comes from the keyring of the
// client that defines it, whichever one the hub's process has.
func TestKeyringsOfClients(t *testing.T) {
	hub, one, two := &keyring{value: "hub-secret"}, &keyring{value: "key-one"}, &keyring{value: "key-two", locked: true}
	closed := &keyring{value: "key-closed", locked: true, refuses: true}
	const variable = "DBUS_SESSION_BUS_ADDRESS"
	t.Setenv(variable, hub.serve(t))
	s := newShared(t, map[string]any{"a": testServer(t, map[string]any{"env": map[string]string{serverVariable: "1", "KEY": "${keyring:token}"}})})
	defer s.core.Close()
	for _, tt := range []struct {
		name      string
		vars      []string
		want, err string
	}{
		{"one", []string{variable + "=" + one.serve(t)}, "key-one", ""},
		{"a locked one", []string{variable + "=" + two.serve(t)}, "key-two", ""},
		{"one that the user does not unlock", []string{variable + "=" + closed.serve(t)}, "", "it was not unlocked"},
		{"none", nil, "", variable + " is not set"},
		{"an empty one", []string{variable + "=" + sandboxtest.Bus(t)}, "", "org.freedesktop.secrets"},
	} {
		c := s.client("work", tt.vars...)
		got, err := call(t.Context(), c, "", "a", "key")
		if err != nil { // code is not told why
			_, err = c.Servers.Server(t.Context(), "a")
		}
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %q", tt.name, got, err, tt.want, tt.err)
		}
		c.Close()
	}
}

// TestKeysInKeyrings: the program's own keys are kept in the keyring of the client.
func TestKeysInKeyrings(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/none") // never used
	for _, tt := range []struct {
		name    string
		keyring *keyring
		err     string
	}{
		{"unlocked", &keyring{}, ""},
		{"locked", &keyring{locked: true}, ""},
		{"that the user does not unlock", &keyring{locked: true, refuses: true}, "it was not unlocked"},
	} {
		k := secret.Keyring{Bus: tt.keyring.serve(t)}
		if _, err := k.Get(t.Context(), "logins"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a keyring %s without the entry: got %v, want %v", tt.name, err, fs.ErrNotExist)
		}
		err := k.Set(t.Context(), "logins", "key")
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a keyring %s: got %v, want %q", tt.name, err, tt.err)
		}
		if err != nil {
			continue
		}
		if got, err := k.Get(t.Context(), "logins"); got != "key" || err != nil {
			t.Errorf("a keyring %s, afterwards: got %q, %v, want %q", tt.name, got, err, "key")
		}
	}
	for name, bus := range map[string]string{"without a bus": "", "with a bus that is gone": "unix:path=/none", "with no Secret Service": sandboxtest.Bus(t)} {
		if _, err := (secret.Keyring{Bus: bus}).Get(t.Context(), "logins"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a client %s: got %v, want %v", name, err, errors.ErrUnsupported)
		}
	}
}

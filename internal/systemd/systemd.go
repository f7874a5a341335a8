// Package systemd asks a user's systemd for control groups: an ordinary user may
// not make one, but a part of the hierarchy is delegated to the user's service
// manager.
//
// Protocol: org.freedesktop.systemd1(5), StartTransientUnit.
package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// Names of systemd on the user's bus.
const (
	Name    = "org.freedesktop.systemd1"
	Path    = "/org/freedesktop/systemd1"
	Manager = "org.freedesktop.systemd1.Manager"
)

// ErrNone: the user has no systemd here.
var ErrNone = errors.New("this user has no systemd here")

// Property is a property of a unit.
type Property struct {
	Name  string
	Value dbus.Variant
}

// Set returns a Property.
func Set(name string, value any) Property { return Property{name, dbus.MakeVariant(value)} }

// Auxiliary is a unit that belongs to another.
type Auxiliary struct {
	Name       string
	Properties []Property
}

// connect connects to the user's bus.
func connect(ctx context.Context, address string) (*dbus.Conn, error) {
	if address == "" {
		return nil, ErrNone
	}
	return dbus.Connect(address, dbus.WithContext(ctx))
}

// ControlGroup returns the group that is delegated to the systemd on the bus at
// this address.
func ControlGroup(ctx context.Context, address string) (string, error) {
	conn, err := connect(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	v, err := conn.Object(Name, Path).GetProperty(Manager + ".ControlGroup")
	if err != nil {
		return "", err
	}
	group, ok := v.Value().(string)
	if !ok {
		return "", fmt.Errorf("systemd: the control group is %v", v)
	}
	return group, nil
}

// Scope asks for a new scope with the process in it. systemd moves the process
// soon after, and removes the scope when its last process has ended.
func Scope(ctx context.Context, address, unit, description string, pid int, more ...Property) error {
	conn, err := connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	properties := append([]Property{
		Set("Description", description),
		Set("PIDs", []uint32{uint32(pid)}),
		Set("CollectMode", "inactive-or-failed"),
	}, more...)
	var job dbus.ObjectPath
	err = conn.Object(Name, Path).
		CallWithContext(ctx, Manager+".StartTransientUnit", 0, unit, "fail", properties, []Auxiliary{}).
		Store(&job)
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	return nil
}

package session

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/lazyregexp"
	"github.com/sallyport/sallyport/internal/store"
)

// DefaultName is the name of every client's own session. Such a session ends
// with its client; sessions with other names outlive the process where
// possible.
const DefaultName = "default"

// maxOwner bounds the owner in a Key, in bytes.
const maxOwner = 1024

var validName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// A Key identifies a session. Sessions of different keys share nothing: no
// sandbox, no file and no lock, even where only the case or the Unicode
// normalization of their owners differs.
type Key struct {
	// Owner is the owner of the session: any printable string, such as the
	// subject of a token. Empty is the local user.
	Owner string `json:"owner,omitempty"`
	Name  string `json:"name"`
	// Client is the client whose own session it is if Name is DefaultName, and
	// empty otherwise. Two clients of one owner share its named sessions and
	// each have a session of their own.
	Client string `json:"client,omitempty"`
}

// own reports whether the session ends with its client.
func (k Key) own() bool { return k.Name == DefaultName }

// String returns a string that is unique among valid keys.
func (k Key) String() string {
	s := k.Name
	if k.Client != "" {
		s += "#" + k.Client
	}
	if k.Owner != "" {
		s += "@" + k.Owner
	}
	return s
}

// Label returns the session's name with its owner and without its client, for
// accounts and for labels of sandboxes.
func (k Key) Label() string { return Key{Owner: k.Owner, Name: k.Name}.String() }

// file returns the name of the session's files on disk.
func (k Key) file() string { return store.FileName(k.String(), "") }

// check returns an error if the key is not valid. String relies on it: names
// and clients contain neither "#" nor "@".
func (k Key) check() error {
	switch {
	case !validName().MatchString(k.Name):
		return errors.New("a session's name is 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	case k.Client != "" && (!k.own() || !validName().MatchString(k.Client)):
		return fmt.Errorf("session: %q is not a client of session %s", k.Client, k.Name)
	case len(k.Owner) > maxOwner:
		return fmt.Errorf("a session's owner is at most %d bytes long", maxOwner)
	case !utf8.ValidString(k.Owner) || strings.ContainsFunc(k.Owner, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%q cannot own a session: it contains characters that cannot be printed", k.Owner)
	}
	return nil
}

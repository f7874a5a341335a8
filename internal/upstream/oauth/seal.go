package oauth

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/store"
)

const (
	// keyAccount is the entry of the keyring that has the key. All state directories
	// of a user share it.
	keyAccount = "logins"
	keyFile    = "key"
	placeFile  = "place.json"
	// begin is how sealed files begin; another version has another number.
	family = "sallyport-login "
	begin  = family + "1\n"
	// maxSealed bounds a sealed file.
	maxSealed = 256 << 10
)

// Where the key is.
const (
	inKeyring = "keyring"
	inFile    = "file"
)

// place is the content of placeFile: it says where the key is, once and for all.
type place struct {
	Key   string `json:"key"`   // inKeyring or inFile
	Check string `json:"check"` // identifies the key
}

// sealer seals files with the key of a directory.
type sealer struct {
	mu    sync.Mutex
	check string // of the key that aead uses
	aead  cipher.AEAD
}

// seal encrypts a file of a name. It creates the key if there is none.
func (l *Logins) seal(ctx context.Context, keyring Keyring, name string, plain []byte) ([]byte, error) {
	aead, err := l.aead(ctx, keyring, true)
	if err != nil {
		return nil, err
	}
	return aead.Seal([]byte(begin), nil, plain, []byte(begin+name)), nil
}

// open decrypts a file of a name.
func (l *Logins) open(ctx context.Context, keyring Keyring, name string, data []byte) ([]byte, error) {
	sealed, ok := strings.CutPrefix(string(data), begin)
	if !ok {
		if strings.HasPrefix(string(data), family) {
			return nil, fmt.Errorf("%s is from a newer sallyport: use that one, or remove the file and sign in again", l.dir.Path(name))
		}
		return nil, l.damaged(name)
	}
	aead, err := l.aead(ctx, keyring, false)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, []byte(sealed), []byte(begin+name))
	if err != nil {
		return nil, l.damaged(name)
	}
	return plain, nil
}

// damaged is the error for a file that was not sealed with our key under its name.
func (l *Logins) damaged(name string) error {
	return fmt.Errorf("%s was changed, or is damaged: remove it and sign in again", l.dir.Path(name))
}

// aead returns what seals files.
func (l *Logins) aead(ctx context.Context, keyring Keyring, create bool) (cipher.AEAD, error) {
	l.sealer.mu.Lock()
	defer l.sealer.mu.Unlock()
	p, err := l.place()
	if create && errors.Is(err, fs.ErrNotExist) {
		p, err = l.createKey(ctx, keyring)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is missing, which says where the key of the logins is: sign in again", l.dir.Path(placeFile))
	case err != nil:
		return nil, err
	case l.sealer.aead != nil && l.sealer.check == p.Check:
		return l.sealer.aead, nil
	}
	key, err := l.key(ctx, keyring, p)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derive(key, "sallyport-logins", 32))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	l.sealer.check, l.sealer.aead = p.Check, aead
	return aead, nil
}

func (l *Logins) place() (place, error) {
	var p place
	data, err := l.dir.Read(placeFile, 1<<10)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(data, &p); err != nil || p.Key != inKeyring && p.Key != inFile {
		return p, fmt.Errorf("%s does not say where the key of the logins is: remove it and sign in again", l.dir.Path(placeFile))
	}
	return p, nil
}

// key returns the key. Its errors are not those of the file system: a login whose
// key is gone is not one that does not exist.
func (l *Logins) key(ctx context.Context, keyring Keyring, p place) (key []byte, err error) {
	if p.Key == inFile {
		key, err = l.dir.Key(keyFile, false)
	} else {
		key, err = keyInKeyring(ctx, keyring)
	}
	again := fmt.Sprintf("remove the folder %s and sign in again", l.dir.Path(""))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, store.ErrNoKey):
		return nil, fmt.Errorf("the key of the logins is gone: %v; %s", err, again)
	case err != nil:
		return nil, fmt.Errorf("the key of the logins is in the keyring: %v; unlock it, or %s", err, again)
	case check(key) != p.Check:
		return nil, fmt.Errorf("the logins were sealed with another key than the one in the %s: %s", p.Key, again)
	}
	return key, nil
}

// keyInKeyring returns the key in the keyring.
func keyInKeyring(ctx context.Context, keyring Keyring) ([]byte, error) {
	if keyring == nil {
		return nil, errors.New("this client has no keyring")
	}
	text, err := keyring.Get(ctx, keyAccount)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != store.KeySize {
		return nil, fmt.Errorf("its entry %q is broken, remove it: %w", keyAccount, store.ErrNoKey)
	}
	return key, nil
}

// createKey creates a key in the keyring, or in a file where there is no keyring. A
// key that is there already is used: of another state directory, or of a process
// that died here.
func (l *Logins) createKey(ctx context.Context, keyring Keyring) (place, error) {
	unlock, err := l.lock(placeFile)
	if err != nil {
		return place{}, err
	}
	defer unlock()
	if p, err := l.place(); !errors.Is(err, fs.ErrNotExist) {
		return p, err // another process was faster
	}
	p := place{Key: inFile}
	key, err := l.dir.Key(keyFile, false)
	if errors.Is(err, fs.ErrNotExist) && keyring != nil {
		key, err = newInKeyring(ctx, keyring)
		if err == nil {
			p.Key = inKeyring
		} else if !errors.Is(err, errors.ErrUnsupported) {
			return p, fmt.Errorf("the keyring cannot keep the key of the logins: %w", err)
		}
	}
	if key == nil {
		if key, err = l.dir.Key(keyFile, true); err != nil {
			return p, err
		}
	}
	p.Check = check(key)
	data, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	return p, l.dir.Write(placeFile, data)
}

func newInKeyring(ctx context.Context, keyring Keyring) ([]byte, error) {
	key, err := keyInKeyring(ctx, keyring)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	key = make([]byte, store.KeySize)
	_, _ = rand.Read(key) // never fails
	if err := keyring.Set(ctx, keyAccount, base64.StdEncoding.EncodeToString(key)); err != nil {
		return nil, err
	}
	return keyInKeyring(ctx, keyring) // as it is found later
}

// derive returns a key for one purpose.
func derive(key []byte, purpose string, size int) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, purpose, size)
	if err != nil {
		panic(err) // of the size alone, which is a constant
	}
	return out
}

// check identifies a key, and tells nothing about it.
func check(key []byte) string { return hex.EncodeToString(derive(key, "sallyport-logins check", 16)) }

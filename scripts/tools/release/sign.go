package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

// Names that `sallyport upgrade` looks for.
const (
	sumsName      = "SHA256SUMS"
	signatureName = sumsName + ".minisig"
)

// Where the secret key is.
const (
	keyFileVariable  = "RELEASE_KEY_FILE"
	passwordVariable = "RELEASE_KEY_PASSWORD"
)

// A key signs a release.
type key struct{ private minisign.PrivateKey }

// readKey reads minisign's secret key from the file $RELEASE_KEY_FILE. It is nil
// where that is not set.
func readKey(getenv func(string) string) (*key, error) {
	path := getenv(keyFileVariable)
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var k key
	if minisign.IsEncrypted(text) {
		k.private, err = minisign.DecryptKey(getenv(passwordVariable), text)
	} else {
		err = k.private.UnmarshalText(text)
	}
	if err != nil {
		// The library's error never has the key in it, but says too little.
		return nil, errors.New("$RELEASE_KEY_FILE is no secret key of minisign, or $RELEASE_KEY_PASSWORD is not its password")
	}
	return &k, nil
}

func (k *key) publicKey() minisign.PublicKey {
	public, _ := k.private.Public().(minisign.PublicKey) // documented
	return public
}

// public returns the public key in one line.
func (k *key) public() string {
	lines := strings.Split(strings.TrimSpace(k.publicKey().String()), "\n")
	return lines[len(lines)-1]
}

// trusted is where the executable has the keys that it trusts.
const trusted = "internal/upgrade/sallyport.pub"

// checkKey refuses a release that its own `sallyport upgrade` would not trust.
func (r *release) checkKey() error {
	if r.snapshot {
		return nil
	}
	if r.key == nil {
		if r.unsigned {
			return nil
		}
		return errors.New("no key: set $RELEASE_KEY_FILE to a secret key of minisign, or pass --unsigned")
	}
	keys, err := r.read(trusted)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !strings.Contains(string(keys), r.key.public()) {
		return fmt.Errorf("%s does not have the public key %s: users could not upgrade to this release", trusted, r.key.public())
	}
	return nil
}

// checksums writes SHA256SUMS over everything, and signs it.
func (r *release) checksums() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, s := range sums {
		fmt.Fprintf(&list, "%s  %s\n", s.sha256, s.name)
	}
	if r.key != nil {
		comment := "sallyport " + r.version.String()
		signed := minisign.NewReader(bytes.NewReader(list.Bytes()))
		if _, err := io.Copy(io.Discard, signed); err != nil {
			return err
		}
		// A reader makes the prehashed kind of signature, which minisign itself makes.
		signature := signed.SignWithComments(r.key.private, comment, "signature of "+sumsName)
		if !minisign.Verify(r.key.publicKey(), list.Bytes(), signature) {
			return errors.New("the signature just made does not verify")
		}
		if err := r.write(signatureName, signature); err != nil {
			return err
		}
	}
	if err := r.write(sumsName, list.Bytes()); err != nil {
		return err
	}
	err = os.Remove(filepath.Join(r.out, unfinished))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A sum is a file of the release and its checksum.
type sum struct{ name, sha256 string }

// sums reads what has been written so far, in the order of names.
func (r *release) sums() ([]sum, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var sums []sum
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		digest, err := fileSum(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, err
		}
		sums = append(sums, sum{e.Name(), digest})
	}
	return sums, nil
}

func fileSum(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:]), nil
}

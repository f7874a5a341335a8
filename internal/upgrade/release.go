package upgrade

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/mod/semver"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Names of the files of every release.
const (
	sumsName      = "SHA256SUMS"
	signatureName = sumsName + ".minisig"
)

// A Release is what a verified signature vouches for.
type Release struct {
	Version string // without v: 1.2.3
	sums    map[string]sum
}

type sum [sha256.Size]byte

// Valid reports whether v is a full semantic version without v and without
// build metadata, such as 1.2.3 or 1.2.3-rc.1. It is then safe in file names
// and URLs.
func Valid(v string) bool {
	return len(v) <= 64 && semver.IsValid("v"+v) && semver.Canonical("v"+v) == "v"+v
}

// Compare returns -1, 0 or +1 as version a is older than, the same as or newer
// than b. Build metadata, such as +dirty, does not count.
func Compare(a, b string) int { return semver.Compare("v"+a, "v"+b) }

// comment is the trusted comment of a release's signature.
func comment(version string) string { return "sallyport " + version }

// claimedVersion returns the version that a signature names, unverified.
func claimedVersion(signature []byte) (string, error) {
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return "", fmt.Errorf("%s is not a minisign signature: %w", signatureName, err)
	}
	version, ok := strings.CutPrefix(s.TrustedComment, comment(""))
	if !ok || !Valid(version) {
		return "", fmt.Errorf("the trusted comment of %s is %q: want %q and a version", signatureName, short(s.TrustedComment), comment(""))
	}
	return version, nil
}

// verify returns the release that signature vouches for: one of the keys signed
// sums and the version in the trusted comment.
func verify(keys []minisign.PublicKey, sums, signature []byte) (*Release, error) {
	version, err := claimedVersion(signature)
	if err != nil {
		return nil, err
	}
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return nil, err
	}
	if s.Algorithm != minisign.HashEdDSA {
		return nil, fmt.Errorf("%s is a signature of minisign's old kind: want a prehashed one", signatureName)
	}
	known, good := false, false
	for _, key := range keys {
		if key.ID() != s.KeyID {
			continue
		}
		known = true
		good = good || minisign.Verify(key, sums, signature)
	}
	switch {
	case !known:
		return nil, fmt.Errorf("%s was made with the key %016X, which this executable does not trust: nothing was installed", signatureName, s.KeyID)
	case !good:
		return nil, fmt.Errorf("%s does not match %s: one of them was altered; nothing was installed", signatureName, sumsName)
	}
	list, err := decodeSums(sums)
	if err != nil {
		return nil, err
	}
	return &Release{Version: version, sums: list}, nil
}

var fileName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,199}$`)

// decodeSums reads the output of sha256sum: a checksum and a file name a line.
func decodeSums(data []byte) (map[string]sum, error) {
	sums := map[string]sum{}
	for n, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		fail := func(why string) (map[string]sum, error) {
			return nil, fmt.Errorf("%s, line %d: %s", sumsName, n+1, why)
		}
		const digits = 2 * sha256.Size
		if len(line) < digits+3 || line[digits] != ' ' || line[digits+1] != ' ' && line[digits+1] != '*' {
			return fail("want a checksum, two spaces and a file name")
		}
		var s sum
		if _, err := hex.Decode(s[:], line[:digits]); err != nil {
			return fail("the checksum is not hexadecimal")
		}
		name := string(line[digits+2:])
		if !fileName().MatchString(name) {
			return fail("the file name has characters that no release uses")
		}
		if _, twice := sums[name]; twice {
			return fail(name + " is listed twice")
		}
		sums[name] = s
	}
	return sums, nil
}

// A Platform is an operating system and an architecture, in Go's names.
type Platform struct{ OS, Arch string }

// String returns the platform as `sallyport version` prints it.
func (p Platform) String() string { return p.OS + "/" + p.Arch }

func (p Platform) executable() string {
	if p.OS == "windows" {
		return "sallyport.exe"
	}
	return "sallyport"
}

// archive returns the name of the platform's archive and its checksum.
func (r *Release) archive(p Platform) (string, sum, error) {
	name := fmt.Sprintf("sallyport_%s_%s_%s.tar.gz", r.Version, p.OS, p.Arch)
	if p.OS == "windows" {
		name = strings.TrimSuffix(name, ".tar.gz") + ".zip"
	}
	s, ok := r.sums[name]
	if !ok {
		return "", sum{}, fmt.Errorf("release %s has no archive for %s: %s does not list %s", r.Version, p, sumsName, name)
	}
	return name, s, nil
}

// short returns hostile text cut to a length for an error.
func short(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}

var errTooLarge = errors.New("larger than a release can be")

package image

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// local is the registry in the names of images that no registry has: those that
// were built or loaded here under a name without a registry.
const local = "localhost/"

// environments begin the names of images that environments have.
const environments = local + "sallyport/env/"

// Environment returns the environment that has an image of this full name, or "".
func Environment(full string) string {
	rest, ok := strings.CutPrefix(full, environments)
	if !ok {
		return ""
	}
	name, _ := splitTag(rest)
	return name
}

// A Name is an image's name as the user gave it, and its full name.
type Name struct {
	// Text is the name as given.
	Text string
	// Full is the name with its registry, and its tag or digest.
	Full string
	// ID is set instead of Full if Text is the digest of an image's
	// configuration.
	ID string

	short bool // Text has no registry
	ref   name.Reference
}

var (
	wholeID = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)
	partID  = lazyregexp.New(`^(sha256:)?[0-9a-f]{12,64}$`)
	// wholeName matches a full name. It is stricter than the client's own
	// check.
	wholeName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
)

// hexOf returns the part of a digest that serves as a file name.
func hexOf(id string) string { return strings.TrimPrefix(id, "sha256:") }

// ParseName parses the name of an image: "python:3.13-slim",
// "registry.example/team/image@sha256:…", "localhost/mine", or the image's ID.
func ParseName(text string) (Name, error) {
	if wholeID().MatchString(text) {
		return Name{Text: text, ID: text}, nil
	}
	ref, err := name.ParseReference(text)
	if err != nil || !wholeName().MatchString(ref.Name()) || strings.HasPrefix(text, "sha256:") {
		return Name{}, fmt.Errorf("%q is not an image name: write it as python:3.13-slim or registry.example/team/image:tag", text)
	}
	n := Name{Text: text, Full: ref.Name(), ref: ref}
	first, _, several := strings.Cut(text, "/")
	n.short = !several || !strings.ContainsAny(first, ".:") && first != "localhost"
	const hub = name.DefaultRegistry + "/"
	if rest, ok := strings.CutPrefix(n.Full, hub); ok {
		n.Full = "docker.io/" + rest
		if strings.HasPrefix(text, local) {
			n.Full = rest
		}
	}
	return n, nil
}

// Local reports whether no registry can have the image.
func (n Name) Local() bool { return n.ID != "" || strings.HasPrefix(n.Full, local) }

// Here returns the name for an image that is built or loaded here: a name
// without a registry gets the local one.
func (n Name) Here() Name {
	if n.short && n.ID == "" {
		if here, err := ParseName(local + n.Text); err == nil {
			here.Text = n.Text
			return here
		}
	}
	return n
}

// Reference returns the name in the form of the registry's client. It is nil
// for an ID.
func (n Name) Reference() name.Reference { return n.ref }

// digest returns the digest in a name, if there is one.
func (n Name) digest() (repository, digest string) {
	repository, digest, ok := strings.Cut(n.Full, "@")
	if !ok {
		return "", ""
	}
	return repository, digest
}

package image

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ChoosePlatform returns the image of an index that runs on this machine.
func ChoosePlatform(index *v1.IndexManifest) (v1.Hash, error) {
	var there []string
	for _, m := range index.Manifests {
		p := m.Platform
		if p == nil {
			if len(index.Manifests) == 1 {
				return m.Digest, nil
			}
			continue
		}
		if p.OS == "linux" && p.Architecture == runtime.GOARCH && suits(p.Variant) {
			return m.Digest, nil
		}
		if s := p.String(); p.OS != "unknown" && !slices.Contains(there, s) {
			there = append(there, s)
		}
	}
	slices.Sort(there)
	return v1.Hash{}, fmt.Errorf("%w: it is not available for linux/%s, only for %s", ErrUnusable, runtime.GOARCH, strings.Join(there, ", "))
}

// suits reports whether every machine of an architecture runs a variant.
func suits(variant string) bool {
	switch variant {
	case "", "v1", "v8":
		return true
	}
	return false
}

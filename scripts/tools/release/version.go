package main

import (
	"fmt"
	"regexp"
)

// A version is one of those that every package format can express: 1.2.3, and
// 1.2.3-rc.1 with the words alpha, beta and rc. A snapshot's word is pre.
type version struct{ number, word, count string }

var versions = regexp.MustCompile(`^v((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))(?:-(alpha|beta|rc|pre)\.(0|[1-9]\d*))?$`)

func parseVersion(tag string) (version, error) {
	m := versions.FindStringSubmatch(tag)
	if m == nil {
		return version{}, fmt.Errorf("the tag %s is no version: want v1.2.3, or v1.2.3-rc.1 with alpha, beta or rc", tag)
	}
	return version{m[1], m[2], m[3]}, nil
}

// String returns the version without v, as a semantic version.
func (v version) String() string {
	if v.word == "" {
		return v.number
	}
	return v.number + "-" + v.word + "." + v.count
}

var relativeLink = regexp.MustCompile(`(!?)(\[[^\]]*\]\()([^):#\s][^):\s]*\))`)

// absolute returns the README for packages, whose pages have none of the files that it
// links to: links and pictures lead to those of this version.
func (v version) absolute(readme []byte) []byte {
	return relativeLink.ReplaceAllFunc(readme, func(link []byte) []byte {
		m, folder := relativeLink.FindSubmatch(link), "/blob/v"
		if len(m[1]) > 0 {
			folder = "/raw/v"
		}
		return fmt.Appendf(nil, "%s%s%s%s%s/%s", m[1], m[2], project, folder, v, m[3])
	})
}

// python returns the version as PyPI wants it.
func (v version) python() string {
	return v.number + map[string]string{"": "", "alpha": "a", "beta": "b", "rc": "rc", "pre": ".dev"}[v.word] + v.count
}

// prerelease returns the part after the number, as apk wants it: rc1.
func (v version) prerelease() string { return v.word + v.count }

package registry

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
)

func TestCredentials(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the helper is a shell script")
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	auth := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	write("docker-credential-good", `#!/bin/sh
[ "$1" = get ] || exit 1
read -r key || [ -n "$key" ]
case "$key" in
  helped.example) echo '{"Username": "me", "Secret": "from the helper"}';;
  https://index.docker.io/v1/) echo '{"Username": "<token>", "Secret": "hub token"}';;
  loud.example) echo 'the secret is hunter2'; exit 1;;
  odd.example) echo 'hunter2';;
  *) echo 'credentials not found in native keychain'; exit 1;;
esac
`, 0o755)
	podman := write("auth.json", `{"auths": {
		"r.example": {"auth": "`+auth("all:p1")+`"},
		"r.example/team": {"auth": "`+auth("team:p2")+`"},
		"r.example/team/secret/x": {"auth": "`+auth("x:p3:with:colons")+`"},
		"broken.example": {"auth": "bm8gY29sb24="},
		"docker.io": {"auth": "`+auth("hub:p4")+`"}
	}}`, 0o600)
	docker := write("config.json", `{"auths": {
		"https://url.example/v1/": {"auth": "`+auth("url:p5")+`"},
		"token.example": {"identitytoken": "refresh"},
		"empty.example": {}
	}, "credHelpers": {"helped.example": "good", "loud.example": "good", "odd.example": "good", "bad.example": "../../evil", "none.example": "missing"}, "credsStore": "good"}`, 0o600)
	torn := write("torn.json", `{"auths": {"r.example": {"auth": "c2VjcmV0OmFi`, 0o600)
	tests := []struct {
		name, registry, repository string
		files                      []string
		want                       authn.AuthConfig
		err                        string
	}{
		{"the whole registry", "r.example", "other/x", []string{podman}, authn.AuthConfig{Username: "all", Password: "p1"}, ""},
		{"a part of it", "r.example", "team/x", []string{podman}, authn.AuthConfig{Username: "team", Password: "p2"}, ""},
		{"one repository", "r.example", "team/secret/x", []string{podman}, authn.AuthConfig{Username: "x", Password: "p3:with:colons"}, ""},
		{"Docker Hub as podman calls it", hubHost, "library/python", []string{podman}, authn.AuthConfig{Username: "hub", Password: "p4"}, ""},
		{"Docker Hub from a store", hubHost, "library/python", []string{docker}, authn.AuthConfig{IdentityToken: "hub token"}, ""},
		{"the first file counts", hubHost, "library/python", []string{"", filepath.Join(dir, "nowhere"), podman, docker}, authn.AuthConfig{Username: "hub", Password: "p4"}, ""},
		{"the second where the first knows nothing", "url.example", "x", []string{podman, docker}, authn.AuthConfig{Username: "url", Password: "p5"}, ""},
		{"a token", "token.example", "x", []string{docker}, authn.AuthConfig{IdentityToken: "refresh"}, ""},
		{"a helper", "helped.example", "x", []string{docker}, authn.AuthConfig{Username: "me", Password: "from the helper"}, ""},
		{"an empty entry, and a store that has none", "empty.example", "x", []string{docker}, authn.AuthConfig{}, ""},
		{"nobody", "r.example", "x", nil, authn.AuthConfig{}, ""},
		{"a broken entry", "broken.example", "x", []string{podman}, authn.AuthConfig{}, "log in again"},
		{"a torn file", "r.example", "x", []string{torn}, authn.AuthConfig{}, "not an auth file"},
		{"a helper that fails", "loud.example", "x", []string{docker}, authn.AuthConfig{}, "docker-credential-good failed"},
		{"a helper that talks", "odd.example", "x", []string{docker}, authn.AuthConfig{}, "no answer that can be read"},
		{"a helper somewhere else", "bad.example", "x", []string{docker}, authn.AuthConfig{}, "not the name of a credential helper"},
		{"a helper that is not there", "none.example", "x", []string{docker}, authn.AuthConfig{}, "not in the search path"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Credentials{Files: tt.files, Path: "." + string(filepath.ListSeparator) + dir + string(filepath.ListSeparator) + "/bin"}
			got, err := c.find(t.Context(), tt.registry, tt.repository)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("%v, want %q", err, tt.err)
			}
			if err == nil && got != tt.want {
				t.Errorf("%+v", got)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "c2Vj")) {
				t.Errorf("a secret is in the error: %v", err)
			}
		})
	}
}

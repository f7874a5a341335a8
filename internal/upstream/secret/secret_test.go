package secret

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	entries := map[string]string{"sallyport/github": "t0ken", "other/a/b": "nested", "sallyport/input/key": "asked", "input/key": "another's", "sallyport/empty": "", "sallyport/binary": "\x00"}
	r := Reader{Keyring: func(service, account string) (string, error) {
		if account == "locked" {
			return "", errors.New("org.freedesktop.secrets was not provided")
		}
		if value, ok := entries[service+"/"+account]; ok {
			return value, nil
		}
		return "", errNotFound
	}}
	tests := []struct{ kind, name, want, err string }{
		{"file", write("token", "s3cret\n"), "s3cret\n", ""},
		{"file", "token", "", "not absolute"},
		{"file", filepath.Join(dir, "none"), "", "none"},
		{"file", dir, "", "not a regular file"},
		{"file", write("long", strings.Repeat("x", maxSecret+1)), "", "longer than"},
		{"file", write("blank", " \n"), "", "empty"},
		{"file", write("binary", "\xff\xfe"), "", "not text"},
		{"keyring", "github", "t0ken", ""},
		{"keyring", "other/a/b", "nested", ""},
		{"keyring", "none", "", `no entry for service "sallyport", account "none"`},
		{"keyring", "input/key", "asked", ""},
		{"keyring", "/x", "", "no entry for service"},
		{"keyring", "", "", "no entry of a keyring"},
		{"keyring", "empty", "", "empty"},
		{"keyring", "binary", "", "not text"},
		{"keyring", "locked", "", "needs a Secret Service"},
		{"vault", "x", "", `kind "vault"`},
	}
	for _, test := range tests {
		got, err := r.Read(t.Context(), test.kind, test.name)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s %s: %q, %v", test.kind, test.name, got, err)
		}
	}
}

func TestAKeyringThatHangs(t *testing.T) {
	release := make(chan struct{})
	left := make(chan struct{})
	r := Reader{Keyring: func(string, string) (string, error) {
		defer close(left)
		<-release
		return "late", nil
	}}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := r.Read(ctx, "keyring", "x"); !errors.Is(err, why) {
		t.Error(err)
	}
	close(release)
	<-left
}

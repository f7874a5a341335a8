// Package release tests what a release does on the machines of its users.
package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// Versions of the same length: one is made of the other without a second build.
const older, newer = "101.202.303", "101.202.304"

// TestUpgrade: the real program, which trusts the key of this test, replaces
// itself with a newer release, refuses an older one and what is not signed or not
// whole, leaves what a package manager installed alone, and goes back.
func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("builds executables, and starts them")
	}
	if runtime.GOOS == "windows" {
		t.Skip("runs a Unix path")
	}
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	bin := filepath.Join(home, "bin", "sallyport")
	const module = "github.com/sallyport/sallyport/"
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", bin,
		"-ldflags", "-s -w -X "+module+"internal/cli.version=v"+older+" -X "+module+"internal/upgrade.linked="+public.String(), module+"cmd/sallyport")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	old, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	place := map[string][]byte{}
	for version, program := range map[string][]byte{older: old, newer: bytes.ReplaceAll(old, []byte(older), []byte(newer))} {
		name := fmt.Sprintf("sallyport_%s_%s_%s.tar.gz", version, runtime.GOOS, runtime.GOARCH)
		archive := pack(t, program)
		sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(archive), name)
		at := "/download/v" + version + "/"
		place[at+name], place[at+"SHA256SUMS"] = archive, sums
		place[at+"SHA256SUMS.minisig"] = signed(private, sums, version)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := place[strings.Replace(r.URL.Path, "/latest/download/", "/download/v"+newer+"/", 1)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	defer server.Close()
	sallyport := func(args ...string) (string, error) {
		cmd := exec.Command(bin, args...)
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	says := func(want string, fails bool, args ...string) {
		t.Helper()
		got, err := sallyport(args...)
		if (err != nil) != fails || !strings.Contains(got, want) {
			t.Fatalf("%v: got %q, %v; want %q", args, got, err, want)
		}
	}
	is := func(want string) {
		t.Helper()
		says("sallyport "+want+" (", false, "--version")
		got, err := sallyport("version", "--json")
		var v struct{ Version, InstalledBy, Path string }
		if err := errors.Join(err, json.Unmarshal([]byte(got), &v)); err != nil {
			t.Fatal(err)
		}
		if v.Version != want || v.InstalledBy != "archive" || filepath.Base(v.Path) != "sallyport" {
			t.Errorf("version --json: got %+v, want %s, archive and the path", v, want)
		}
	}

	is(older)
	says("sallyport "+newer+" is available; this is "+older, false, "upgrade", "--check", "--from", server.URL)
	is(older)
	says("test build", false, "upgrade", "--from", server.URL)
	is(newer)
	says("is installed already", false, "upgrade", "--from", server.URL)
	says("add --allow-downgrade", true, "upgrade", "--version", older, "--from", server.URL)
	says("sallyport "+older+" is installed", false, "upgrade", "--version", "v"+older, "--allow-downgrade", "--from", server.URL)
	is(older)
	says("sallyport "+newer+" is back", false, "upgrade", "--undo")
	is(newer)
	says("sallyport "+older+" is back", false, "upgrade", "--undo")
	const at = "/download/v" + newer + "/"
	archive := fmt.Sprintf("%ssallyport_%s_%s_%s.tar.gz", at, newer, runtime.GOOS, runtime.GOARCH)
	_, stranger, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		data []byte // nil: the file is absent
		want string
	}{
		{archive, place[archive][:len(place[archive])-100], "does not match its checksum"},
		{archive, nil, "not found"},
		{at + "SHA256SUMS", append(place[at+"SHA256SUMS"], '\n'), "was altered"},
		{at + "SHA256SUMS", nil, "not found"},
		{at + "SHA256SUMS.minisig", signed(stranger, place[at+"SHA256SUMS"], newer), "which this executable does not trust"},
		{at + "SHA256SUMS.minisig", place["/download/v"+older+"/SHA256SUMS.minisig"], "the signature is of " + older},
		{at + "SHA256SUMS.minisig", place[at+"SHA256SUMS.minisig"][:100], "not a minisign signature"},
	} {
		whole := place[tt.path]
		if place[tt.path] = tt.data; tt.data == nil {
			delete(place, tt.path)
		}
		says(tt.want, true, "upgrade", "--from", server.URL, "--version", newer)
		place[tt.path] = whole
		is(older)
	}
	// The version in the newest signature, verified or not, says where to look.
	place[at+"SHA256SUMS.minisig"] = place["/download/v"+older+"/SHA256SUMS.minisig"]
	says("is installed already", false, "upgrade", "--from", server.URL)
	if exec.Command(bin, "doctor").Run() == nil {
		keepsRunning(t, bin, home)
	}
	left, err := filepath.Glob(filepath.Join(home, "bin", ".*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != ".sallyport-previous" {
		t.Errorf("got %q, %v; want only the previous executable", left, err)
	}
}

// signed returns the prehashed signature of a release's checksums.
func signed(key minisign.PrivateKey, sums []byte, version string) []byte {
	r := minisign.NewReader(bytes.NewReader(sums))
	_, _ = io.Copy(io.Discard, r)
	return r.SignWithComments(key, "sallyport "+version, "")
}

// keepsRunning starts a server, replaces its executable with one that fails, and
// then has it start its first sandbox.
func keepsRunning(t *testing.T, bin, home string) {
	t.Helper()
	server := exec.Command(bin, "serve", "--standalone")
	server.Env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	ask := func(request string) string {
		t.Helper()
		if _, err := io.WriteString(in, request+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("no answer to %s: %v", request, lines.Err())
		}
		return lines.Text()
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	broken := bin + "-broken"
	if err := errors.Join(os.WriteFile(broken, []byte("#!/bin/sh\nexit 9\n"), 0o755), os.Rename(broken, bin)); err != nil {
		t.Fatal(err)
	}
	if got := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_python","arguments":{"code":"print(6*7)"}}}`); !strings.Contains(got, "42") {
		t.Errorf("after an upgrade the running server answers %s, want 42", got)
	}
	if err := errors.Join(in.Close(), server.Wait()); err != nil {
		t.Error(err)
	}
}

func pack(t *testing.T, program []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "sallyport", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

package upgrade

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"aead.dev/minisign"
)

// An Upgrader replaces one executable. Its methods leave the executable as it
// was if they fail or ctx ends.
type Upgrader struct {
	Path     string // the executable, without symbolic links
	Platform Platform
	Keys     []minisign.PublicKey
	From     string // a URL or a directory; empty: Releases
	Agent    string // how to introduce this program to a server
	Proxy    func(*url.URL) (*url.URL, error)
	Environ  []string // of the new executable, when it is started to check it
	Progress func(stage string, done, total int64)
}

// Find returns the release of a version, or the newest for "", once its
// signature is verified.
func (u *Upgrader) Find(ctx context.Context, version string) (*Release, error) {
	s, err := u.source()
	if err != nil {
		return nil, err
	}
	signature, err := fetch(ctx, s, version, signatureName)
	if errors.Is(err, errAbsent) {
		if version != "" {
			return nil, fmt.Errorf("release %s was not found: %w", version, err)
		}
		return nil, fmt.Errorf("no release was found: %w", err)
	}
	if err != nil {
		return nil, err
	}
	// Which release is the newest can change between two requests, so the
	// checksums are those of the version in the signature.
	claimed, err := claimedVersion(signature)
	if err != nil {
		return nil, err
	}
	if version != "" && claimed != version {
		return nil, fmt.Errorf("asked for release %s, but the signature is of %s: nothing was installed", version, claimed)
	}
	sums, err := fetch(ctx, s, claimed, sumsName)
	if err != nil {
		return nil, err
	}
	return verify(u.Keys, sums, signature)
}

func (u *Upgrader) source() (source, error) {
	from := u.From
	if from == "" {
		from = Releases
	}
	return newSource(from, u.Agent, u.Proxy)
}

// Install replaces the executable with that of a release. It keeps the old one
// for Undo.
func (u *Upgrader) Install(ctx context.Context, r *Release) error {
	archive, want, err := r.archive(u.Platform)
	if err != nil {
		return err
	}
	s, err := u.source()
	if err != nil {
		return err
	}
	return u.prepare(func(dir string) (string, error) {
		path := filepath.Join(dir, archive)
		if err := u.download(ctx, s, r.Version, archive, want, path); err != nil {
			return "", err
		}
		u.Progress("unpacking", 0, 0)
		fresh, err := u.unpack(path, dir)
		if err != nil {
			return "", err
		}
		u.Progress("starting the new executable", 0, 0)
		return fresh, u.check(ctx, fresh, r.Version)
	})
}

// Undo exchanges the executable with the one that the last upgrade replaced, and
// returns the version of that.
func (u *Upgrader) Undo(ctx context.Context) (version string, err error) {
	previous := previousOf(u.Path)
	info, err := os.Lstat(previous)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no upgrade to undo: %s does not exist", previous)
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", previous)
	}
	err = u.prepare(func(dir string) (string, error) {
		b, err := u.ask(ctx, previous)
		if err != nil {
			return "", err
		}
		version = b.Version
		fresh := filepath.Join(dir, u.Platform.executable())
		return fresh, duplicate(previous, fresh)
	})
	return version, err
}

// duplicate gives a file a second name, or copies it where that is not possible.
func duplicate(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	giveTo(out, info)
	return errors.Join(out.Chmod(info.Mode().Perm()), out.Sync(), out.Close())
}

const workPattern = ".sallyport-upgrade-"

// prepare calls build with a private directory next to the executable, from
// which one rename replaces it, and puts the file that build returns in its place.
func (u *Upgrader) prepare(build func(dir string) (string, error)) error {
	at := filepath.Dir(u.Path)
	removeLeftovers(at)
	dir, err := os.MkdirTemp(at, workPattern)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnly) {
		return &NotWritableError{Dir: at}
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fresh, err := build(dir)
	if err != nil {
		return err
	}
	return replace(u.Path, fresh, dir)
}

// NotWritableError reports an executable that this user cannot replace.
type NotWritableError struct{ Dir string }

// Error implements error.
func (e *NotWritableError) Error() string {
	return "you cannot write to " + e.Dir + ", where the executable is"
}

// removeLeftovers removes what killed upgrades left.
func removeLeftovers(dir string) {
	const forgotten = time.Hour
	found, _ := filepath.Glob(filepath.Join(escapeGlob(dir), workPattern+"*"))
	for _, path := range found {
		if info, err := os.Lstat(path); err == nil && info.IsDir() && time.Since(info.ModTime()) > forgotten {
			_ = os.RemoveAll(path)
		}
	}
}

func escapeGlob(path string) string {
	var b bytes.Buffer
	for _, c := range []byte(path) {
		if filepath.Separator == '/' && (c == '*' || c == '?' || c == '[' || c == '\\') {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// download saves an archive and verifies its checksum.
func (u *Upgrader) download(ctx context.Context, s source, version, name string, want sum, path string) error {
	body, size, err := s.open(ctx, version, name)
	if err != nil {
		return err
	}
	defer body.Close()
	if size > maxArchive {
		return fmt.Errorf("%s is %w", name, errTooLarge)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	digest := sha256.New()
	r := io.TeeReader(io.LimitReader(body, maxArchive+1), &progress{u.Progress, size, 0})
	n, err := io.Copy(io.MultiWriter(file, digest), &canceled{ctx, r})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case n > maxArchive:
		return fmt.Errorf("%s is %w", name, errTooLarge)
	case sum(digest.Sum(nil)) != want:
		return fmt.Errorf("%s does not match its checksum: it was altered or is incomplete (%d bytes); nothing was installed", name, n)
	}
	return file.Close()
}

// progress reports what is written to it.
type progress struct {
	report      func(stage string, done, total int64)
	total, done int64
}

func (p *progress) Write(data []byte) (int, error) {
	p.done += int64(len(data))
	p.report("downloading", p.done, p.total)
	return len(data), nil
}

// canceled is a reader that fails once ctx has ended.
type canceled struct {
	ctx context.Context
	r   io.Reader
}

func (c *canceled) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// unpack extracts the executable of an archive, with the mode and owner of the
// one that it will replace.
func (u *Upgrader) unpack(archive, dir string) (string, error) {
	old, err := os.Stat(u.Path)
	if err != nil {
		return "", err
	}
	in, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer in.Close()
	name := u.Platform.executable()
	path := filepath.Join(dir, name)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer out.Close()
	if err := extract(in, name, out); err != nil {
		return "", err
	}
	giveTo(out, old)
	// The owner first: changing it can clear bits of the mode.
	if err := out.Chmod(old.Mode().Perm()); err != nil {
		return "", err
	}
	if err := out.Sync(); err != nil {
		return "", err
	}
	return path, out.Close()
}

// build is what `version --json` prints of an executable.
type build struct {
	Version  string `json:"version"`
	Platform string `json:"platform"`
}

// ask starts an executable for its version.
func (u *Upgrader) ask(ctx context.Context, path string) (b build, err error) {
	const wait = time.Minute
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "--json")
	cmd.Env = u.Environ
	cmd.WaitDelay = time.Second
	var out, errs limited
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if said := bytes.TrimSpace(errs.Bytes()); len(said) > 0 {
			err = fmt.Errorf("%w: %s", err, short(string(said)))
		}
		return b, fmt.Errorf("the executable %s does not run: %w", path, err)
	}
	if err := json.Unmarshal(out.Bytes(), &b); err != nil {
		return b, fmt.Errorf("the executable %s does not report its version: %w", path, err)
	}
	return b, nil
}

// check starts an executable and compares its version and platform.
func (u *Upgrader) check(ctx context.Context, path, version string) error {
	got, err := u.ask(ctx, path)
	if err != nil {
		return fmt.Errorf("%w; nothing was installed", err)
	}
	if want := (build{version, u.Platform.String()}); got != want {
		return fmt.Errorf("the archive has sallyport %s for %s, want %s for %s; nothing was installed",
			short(got.Version), short(got.Platform), want.Version, want.Platform)
	}
	return nil
}

// limited keeps the first bytes that are written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxSmall - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// previousOf returns where the executable that an upgrade replaces is kept.
func previousOf(path string) string {
	base := filepath.Base(path)
	ext := filepath.Ext(base)
	if ext != ".exe" {
		ext = ""
	}
	return filepath.Join(filepath.Dir(path), "."+base[:len(base)-len(ext)]+"-previous"+ext)
}

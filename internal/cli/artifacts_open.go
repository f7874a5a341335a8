package cli

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/invisible"
)

type artifactsOpenCmd struct {
	Artifact string `arg:"" help:"ID/PATH, or PATH for the newest file of that path." complete:"artifacts"`
}

// Help implements kong's HelpProvider.
func (*artifactsOpenCmd) Help() string {
	return `Opens a read-only copy. Only files of types that run nothing are opened: pictures, PDF, text, CSV and JSON. SVG is a picture. A page is shown in a frame that may request nothing and read no files; browsers have no rule against WebRTC and preconnect, with which a hostile page can still open a connection. The copy is removed by a later 'artifacts open', after a day.

Example:
  sallyport artifacts open figure-1.html`
}

// opens are the types that are opened, with the end of the copy's name. It decides which
// program opens the copy, so that it never comes from the sandbox.
var opens = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/bmp": ".bmp",
	"application/pdf": ".pdf", "text/csv": ".csv", "text/tab-separated-values": ".tsv", "application/json": ".json",
	"text/html": ".html", "image/svg+xml": ".html",
}

// Run implements the command.
func (c *artifactsOpenCmd) Run(u *ui) error {
	store, err := u.artifacts()
	if err != nil {
		return err
	}
	files, _, err := findArtifact(store, c.Artifact)
	if err != nil {
		return err
	}
	if len(files) > 1 {
		return fmt.Errorf("%s has %d files; name one as %s", c.Artifact, len(files), invisible.Line(files[0].address()))
	}
	f := files[0].File
	end := opens[f.Type]
	if end == "" && artifact.IsText(f.Type) {
		end = ".txt"
	}
	if end == "" {
		return fmt.Errorf("files of the type %s are not opened, because they may run code; `sallyport artifacts save` writes them to this computer", invisible.Line(f.Type))
	}
	opener, err := findOpener()
	if err != nil {
		return fmt.Errorf("no program to open files with: %w; `sallyport artifacts save` writes them to this computer", err)
	}
	sweepOpened()
	dir, err := os.MkdirTemp("", openedPrefix+"*") // 0700
	if err != nil {
		return err
	}
	copied := filepath.Join(dir, "artifact"+end)
	if err := u.copyToOpen(store, f, copied); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	command := exec.CommandContext(u.ctx, opener[0], append(opener[1:], copied)...)
	command.Stdout, command.Stderr = u.stdio.Out, u.stdio.Err
	if err := command.Run(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Base(opener[0]), err), os.RemoveAll(dir))
	}
	return nil
}

// findOpener returns the desktop's program to open files with.
func findOpener() ([]string, error) {
	words := []string{"xdg-open"}
	switch runtime.GOOS {
	case "darwin":
		words = []string{"open"}
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	found, err := exec.LookPath(words[0])
	if err != nil {
		return nil, err
	}
	words[0] = found
	return words, nil
}

const (
	openedPrefix = "sallyport-open-"
	// openedTime is how long copies are kept: programs read them after the command.
	openedTime = 24 * time.Hour
)

// sweepOpened removes old copies. Those of other users stay.
func sweepOpened() {
	entries, _ := os.ReadDir(os.TempDir())
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.IsDir() && strings.HasPrefix(e.Name(), openedPrefix) && time.Since(info.ModTime()) > openedTime {
			_ = os.RemoveAll(filepath.Join(os.TempDir(), e.Name()))
		}
	}
}

// Pages run in a frame without an origin. The policy is that of the page around the
// frame: it holds for what is in it too, and for where the frame may go.
const (
	pageHead  = `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob:; worker-src blob:; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; media-src data: blob:; frame-src 'none'; form-action 'none'; base-uri 'none'; webrtc 'block'"><meta http-equiv="x-dns-prefetch-control" content="off"><style>html,body,iframe{margin:0;border:0;width:100%;height:100%}img{max-width:100%}</style>`
	frameHead = `<iframe sandbox="allow-scripts" srcdoc="`
	pageTail  = `">`
)

// copyToOpen writes the copy that is opened.
func (u *ui) copyToOpen(store *artifact.Store, f artifact.File, name string) error {
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(to, 64<<10)
	switch f.Type {
	case "text/html":
		_, _ = w.WriteString(pageHead + frameHead) // Flush reports it
		err = u.saveArtifact(store, f, quoting{w})
		_, _ = w.WriteString(pageTail)
	case "image/svg+xml": // as a picture, it runs no scripts
		_, _ = w.WriteString(pageHead + `<img alt="" src="data:image/svg+xml;base64,`)
		encoder := base64.NewEncoder(base64.StdEncoding, w)
		err = errors.Join(u.saveArtifact(store, f, encoder), encoder.Close())
		_, _ = w.WriteString(pageTail)
	default:
		err = u.saveArtifact(store, f, w)
	}
	return errors.Join(err, w.Flush(), to.Close())
}

// quoting writes text into an attribute's quotes.
type quoting struct{ w io.Writer }

var attribute = strings.NewReplacer("&", "&amp;", `"`, "&quot;")

func (q quoting) Write(p []byte) (int, error) {
	if _, err := attribute.WriteString(q.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

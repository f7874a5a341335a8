package oauth

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// page is what the browser shows at the end.
type page struct {
	status     int
	title      string
	paragraphs []string
}

const pageStyle = `:root{color-scheme:light dark}` +
	`body{margin:0;min-height:100vh;display:grid;place-items:center;font:1rem/1.5 system-ui,sans-serif;background:#f4f5f7;color:#1c2024}` +
	`main{box-sizing:border-box;width:min(32rem,calc(100vw - 2rem));padding:2rem;border-radius:.75rem;background:#fff;border:1px solid #dfe2e6;overflow-wrap:anywhere}` +
	`h1{font-size:1.35rem;line-height:1.3;margin:0 0 .75rem}p{margin:.75rem 0 0}small{color:#606870}` +
	`@media(prefers-color-scheme:dark){body{background:#16181b;color:#e8eaed}main{background:#202327;border-color:#363b41}small{color:#9aa2ab}}`

// pagePolicy permits the style and the empty icon, which spares the browser a
// request for one.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// write sends the page and leaves nothing of it in a buffer.
func (p page) write(w http.ResponseWriter) {
	var b strings.Builder
	title := html.EscapeString(p.title)
	b.WriteString(`<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
		`<link rel="icon" href="data:,"><title>` + title + ` - Sallyport</title><style>` + pageStyle + `</style>` +
		`<main><small>Sallyport</small><h1>` + title + `</h1>`)
	for _, paragraph := range p.paragraphs {
		b.WriteString(`<p>` + html.EscapeString(paragraph) + `</p>`)
	}
	b.WriteString(`</main></html>`)
	send(w, p.status, "text/html; charset=utf-8", b.String())
}

// brief answers what is not a person's browser on its way back.
func brief(w http.ResponseWriter, status int) {
	send(w, status, "text/plain; charset=utf-8", http.StatusText(status)+"\n")
}

func send(w http.ResponseWriter, status int, kind, content string) {
	for name, value := range map[string]string{
		"Content-Type":               kind,
		"Content-Length":             strconv.Itoa(len(content)),
		"Content-Security-Policy":    pagePolicy,
		"Cross-Origin-Opener-Policy": "same-origin",
		"Referrer-Policy":            "no-referrer",
		"Cache-Control":              "no-store",
		"X-Content-Type-Options":     "nosniff",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, content) // a browser that has gone needs no page
	_ = http.NewResponseController(w).Flush()
}

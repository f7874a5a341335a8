package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/settings"
)

// TestNotify: a command and a webhook hear of a question, signed and without
// arguments.
func TestNotify(t *testing.T) {
	type request struct {
		body      []byte
		signature string
	}
	got := make(chan request, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{body, r.Header.Get("X-Sallyport-Signature")}
	}))
	defer hook.Close()
	out := filepath.Join(t.TempDir(), "out")
	a := &App{Env: Environment{"PATH": os.Getenv("PATH")}, Settings: &settings.Settings{}, Log: slog.New(slog.DiscardHandler), Life: t.Context()}
	if a.notifier() != nil {
		t.Error("there are notifications though none are configured")
	}
	n := &a.Settings.Approvals.Notify
	n.Command = []string{"sh", "-c", `cat >"$0"`, out}
	n.Webhook, n.Secret = hook.URL, "s3cret"
	a.notifier()(approval.Question{ID: "k3vq", Revision: 40, Action: "call_tool", Server: "files", Item: "write", Waiting: 40, Fixed: []string{`content = "private"`}})
	r := <-got // the command came first
	told, err := os.ReadFile(out)
	if err != nil || string(told) != string(r.body) {
		t.Errorf("the command got %s, %v, want %s", told, err, r.body)
	}
	var sent notice
	if err := json.Unmarshal(r.body, &sent); err != nil || sent.Question != "k3vq.40" || sent.Name != "files.write" || sent.Waiting != 40 {
		t.Errorf("got %s, %v, want the question", r.body, err)
	}
	if strings.Contains(string(r.body), "private") {
		t.Errorf("got %s, want no arguments", r.body)
	}
	mac := hmac.New(sha256.New, []byte("s3cret"))
	mac.Write(r.body)
	if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); r.signature != want {
		t.Errorf("got signature %q, want %q", r.signature, want)
	}
	moved := httptest.NewServer(http.RedirectHandler(hook.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	if err := post(context.Background(), moved.URL, "", []byte("{}")); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("got %v, want that it goes nowhere else", err)
	}
}

func TestDesktopText(t *testing.T) {
	for _, test := range []struct{ of, title, text string }{
		{"call_tool", "Sallyport: do you allow this?", "files.write (1 waiting): sallyport approvals"},
		{"elicit", "Sallyport: a server asks you", "Waiting for an answer to files: sallyport approvals"},
	} {
		q := approval.Question{Action: test.of, Server: "files", Item: "write", Waiting: 1}
		n := notice{Action: q.Action, Name: q.Name(), Waiting: q.Waiting}
		if title, text := n.text(); title != test.title || text != test.text {
			t.Errorf("%s: got %q, %q, want %q, %q", test.of, title, text, test.title, test.text)
		}
	}
}

package app

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sallyport/sallyport/internal/authz/approval"
)

const (
	// notifyTimeout bounds how long one notification may take.
	notifyTimeout = 10 * time.Second
	// maxNotifying bounds the questions that are being told; further ones are only
	// listed.
	maxNotifying = 16
)

// notice is what notifications tell of a question: no arguments of calls, and
// nothing that a server or code has written besides names.
type notice struct {
	Question string    `json:"question"`
	Action   string    `json:"action"`
	Name     string    `json:"name"`
	Waiting  int       `json:"waiting"`
	Client   string    `json:"client,omitempty"`
	Session  string    `json:"session,omitempty"`
	Rule     string    `json:"rule"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	Command  string    `json:"command"` // that shows and answers it
}

// notifier returns what tells people of questions outside of their clients; nil
// where the settings ask for nothing.
func (a *App) notifier() func(approval.Question) {
	set := a.Settings.Approvals.Notify
	var ways []func(context.Context, notice, []byte) error
	if set.Desktop {
		ways = append(ways, a.notifyDesktop)
	}
	if len(set.Command) > 0 {
		ways = append(ways, func(ctx context.Context, _ notice, data []byte) error {
			return a.command(ctx, data, set.Command[0], set.Command[1:]...)
		})
	}
	if set.Webhook != "" {
		ways = append(ways, func(ctx context.Context, _ notice, data []byte) error {
			key, err := a.readSecret(ctx, "approvals.notify.secret", set.Secret)
			if err != nil {
				return err
			}
			return post(ctx, set.Webhook, key, data)
		})
	}
	if len(ways) == 0 {
		return nil
	}
	places := make(chan struct{}, maxNotifying)
	return func(q approval.Question) {
		select {
		case places <- struct{}{}:
		default:
			a.Log.Warn("too many notifications at a time: a question is only listed", "question", q.ID)
			return
		}
		go func() {
			defer func() { <-places }()
			n := notice{
				Question: q.Address(), Action: q.Action, Name: q.Name(), Waiting: q.Waiting, Client: q.Client, Session: q.Session, Rule: q.Rule,
				Since: q.Since, Deadline: q.Deadline, Command: "sallyport approvals show " + q.ID,
			}
			data, err := json.Marshal(n)
			if err != nil {
				return // cannot happen: text, numbers and times
			}
			ctx, cancel := context.WithTimeout(a.Life, notifyTimeout)
			defer cancel()
			for _, way := range ways {
				if err := way(ctx, n, data); err != nil {
					a.Log.Warn("a notification of a question failed", "question", q.ID, "error", err)
				}
			}
		}()
	}
}

// command runs a program that reads data.
func (a *App) command(ctx context.Context, data []byte, name string, args ...string) error {
	if !filepath.IsAbs(name) {
		var err error
		if name, err = lookIn(name, a.Env["PATH"]); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Env, cmd.WaitDelay = bytes.NewReader(data), a.Env.List(), time.Second
	return cmd.Run()
}

// text is what a person reads on the desktop.
func (n *notice) text() (title, text string) {
	if n.Action == "elicit" {
		return "Sallyport: a server asks you", "Waiting for " + n.Name + ": sallyport approvals"
	}
	return "Sallyport: do you allow this?", fmt.Sprintf("%s (%d waiting): sallyport approvals", n.Name, n.Waiting)
}

// notifyDesktop shows a notification. Names come as arguments of their own, so
// that nothing in them is part of a script or a flag.
func (a *App) notifyDesktop(ctx context.Context, n notice, _ []byte) error {
	title, text := n.text()
	if runtime.GOOS == "darwin" {
		return a.command(ctx, nil, "osascript", "-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run", "--", title, text)
	}
	return a.command(ctx, nil, "notify-send", "--app-name=Sallyport", "--", title, text)
}

// post sends data to an address, signed where there is a secret.
func post(ctx context.Context, url, key string, data []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write(data)
		r.Header.Set("X-Sallyport-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return nil
}

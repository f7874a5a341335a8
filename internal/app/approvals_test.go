package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/settings"
)

// TestQuestionsHideSecrets: known secrets are masked in what people are asked.
func TestQuestionsHideSecrets(t *testing.T) {
	set := &settings.Settings{}
	set.Approvals.Timeout = time.Minute
	a := &App{Settings: set, Log: slog.New(slog.DiscardHandler), Life: t.Context()}
	a.secrets.Add("hunter2-of-the-user")
	book := a.approvals(nil, nil, nil)
	defer book.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = book.Ask(ctx, authz.Local("tests"), authz.CallTool{Server: &authz.Server{Name: "x"}, Tool: "y", Arguments: json.RawMessage(`{"token":"Bearer hunter2-of-the-user"}`)}, authz.Decision{})
	}()
	q, err := book.Next(t.Context(), func(*approval.Question) bool { return true })
	cancel()
	<-ended
	if text := q.Text(); err != nil || strings.Contains(text, "hunter2") || !strings.Contains(text, `token = "Bearer `) {
		t.Errorf("got %s, %v, want the secret masked", text, err)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// metadata is the client ID metadata document that the suite knows.
const metadata = "https://conformance-test.local/client-metadata.json"

// credentials returns what the suite gives a client for a scenario, as a
// definition says it.
func credentials(scenario string) (definitions.OAuth, error) {
	var given struct {
		ID        string `json:"client_id"`
		Secret    string `json:"client_secret"`
		Key       string `json:"private_key_pem"`
		Algorithm string `json:"signing_algorithm"`
		Workload  string `json:"valid_jwt"`
		IdP       string `json:"idp_issuer"`
		IdPID     string `json:"idp_client_id"`
		IDToken   string `json:"idp_id_token"`
	}
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			return definitions.OAuth{}, err
		}
	}
	o := definitions.OAuth{ID: given.ID, Secret: given.Secret}
	switch scenario {
	case "auth/client-credentials-basic", "auth/client-credentials-jwt":
		o.Grant, o.Key, o.Algorithm = string(oauth.Credentials), given.Key, given.Algorithm
	case "auth/wif-jwt-bearer":
		o.Grant, o.Assertion = string(oauth.Workload), given.Workload
	case "auth/enterprise-managed-authorization":
		o.Grant, o.Assertion, o.IdP, o.IdPID = string(oauth.Enterprise), given.IDToken, given.IdP, given.IdPID
	}
	return o, nil
}

// signingIn uses a server's tool and signs in whenever that is what is asked for,
// as often as a patient person would.
func signingIn(ctx context.Context, m *upstream.Manager) error {
	for patience := 3; ; patience-- {
		s, err := m.Server(ctx, "suite")
		if err == nil {
			_, err = s.Tools(ctx)
		}
		if err == nil {
			_, err = s.CallTool(ctx, "test-tool", nil)
		}
		if !errors.Is(err, oauth.ErrSignIn) || patience == 0 {
			return err
		}
		if _, err := m.SignIn(ctx, "suite", func(string) (oauth.Redirect, error) { return consenting{}, nil }); err != nil {
			return err
		}
	}
}

// consenting is a person's browser at an authorization server that asks nothing.
type consenting struct{}

func (consenting) URL() string  { return "http://127.0.0.1:3000/callback" }
func (consenting) Close() error { return nil }

func (consenting) Visit(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if to := response.Header.Get("Location"); to != "" {
		return to, nil
	}
	return "", fmt.Errorf("the authorization server answered with status %d and no redirect", response.StatusCode)
}

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/wire"
)

// depot is a source of packages that has every one, in version 1.
type depot struct {
	mu      sync.Mutex
	asked   []string // what was resolved, with what was there
	fetched []string
	fail    error
}

func (s *depot) Resolve(_ context.Context, asked *wire.InstallPackages, tell func(string)) ([]wire.Package, func(context.Context) (string, int64, error), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tell("resolving")
	s.asked = append(s.asked, fmt.Sprint(asked.Packages, asked.Installed))
	var found []wire.Package
	for _, name := range asked.Packages {
		name, _, _ = strings.Cut(name, ";")
		if asked.Installed[name] == "" {
			found = append(found, wire.Package{Name: name, Version: "1"})
		}
	}
	return found, func(context.Context) (string, int64, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetched = append(s.fetched, strings.Join(asked.Packages, " "))
		return "aa", 7, s.fail
	}, nil
}

func (s *depot) Part(archive string, offset int64) ([]byte, int64, error) {
	if archive != "aa" {
		return nil, 0, errors.New("/home/me/aa: no such file")
	}
	return []byte("tar"), 7, nil
}

func (s *depot) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := fmt.Sprint(s.asked, s.fetched)
	s.asked, s.fetched = nil, nil
	return out
}

func withPackages(t *testing.T, s Packages, asker authz.Asker, policy ...string) *Execution {
	t.Helper()
	b, err := New(Config{Source: &ear{}, Packages: s, Gate: authz.New(authz.Config{Policy: authz.Default(), Packages: func() []string { return policy }, Asker: asker})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b.Begin(self, nil)
}

// TestInstallPackages: nothing is resolved before the policy allows it, nothing is
// fetched before it is decided, and no failure of the host reaches the code.
func TestInstallPackages(t *testing.T) {
	many := `"a":"1"`
	for i := range maxInstalled {
		many += fmt.Sprintf(`,"a%d":"1"`, i)
	}
	for _, tt := range []struct {
		name, method, params string
		policy               []string
		fail                 error
		want, did            string
	}{
		{"none", "install_packages", `{"packages":["pandas"]}`, nil, nil, "denied: policy.packages does not allow package pandas. The user can", "[] []"},
		{"listed", "install_packages", `{"packages":["pandas"],"installed":{"numpy":"2"}}`, []string{"pandas"}, nil, `{"archive":"aa","packages":[{"name":"pandas","version":"1"}],"bytes":7}`, "[[pandas] map[numpy:2]] [pandas]"},
		{"all is there", "install_packages", `{"packages":["pandas"],"installed":{"pandas":"2"}}`, []string{"any"}, nil, `{"packages":[]}`, "[[pandas] map[pandas:2]] []"},
		{"one letter away", "install_packages", `{"packages":["pandsa"]}`, []string{"any", "pandas"}, nil, "denied: package pandsa is refused", "[] []"},
		{"no one to ask", "install_packages", `{"packages":["httpx"]}`, []string{"ask"}, nil, "denied: policy.packages asks about what it does not list: httpx", "[[httpx] map[]] []"},
		{"the host fails", "install_packages", `{"packages":["httpx"]}`, []string{"any"}, errors.New("open /home/me/x"), "internal: the host could not prepare the packages", "[[httpx] map[]] [httpx]"},
		{"no list", "install_packages", `{"packages":"httpx"}`, []string{"any"}, nil, "invalid: ", "[] []"},
		{"no package", "install_packages", `{}`, []string{"any"}, nil, "denied: no package was named", "[] []"},
		{"many packages", "install_packages", `{"packages":[` + strings.Repeat(`"a",`, 200) + `"a"]}`, []string{"any"}, nil, "limit_exceeded: ", "[] []"},
		{"many that are there", "install_packages", `{"packages":["a"],"installed":{` + many + `}}`, []string{"any"}, nil, "limit_exceeded: ", "[] []"},
		{"what the host says is for the user", "install_packages", `{"packages":["httpx"]}`, []string{"any"}, fmt.Errorf("%w: open /home/me/x", &wire.CallError{Kind: "unavailable", Message: "no"}), "unavailable: no", "[[httpx] map[]] [httpx]"},
		{"a part", "package_part", `{"archive":"aa","offset":4}`, nil, nil, `{"data":"dGFy","last":true,"bytes":7}`, "[] []"},
		{"the first part", "package_part", `{"archive":"aa"}`, nil, nil, `{"data":"dGFy","last":false,"bytes":7}`, "[] []"},
		{"no such part", "package_part", `{"archive":"bb"}`, nil, nil, "internal: the host could not", "[] []"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &depot{fail: tt.fail}
			raw, err := withPackages(t, s, nil, tt.policy...).Call(t.Context(), wire.Call{Method: tt.method, Params: json.RawMessage(tt.params)})
			got := string(raw)
			var failed *wire.CallError
			if errors.As(err, &failed) {
				got = failed.Kind + ": " + failed.Message
			}
			if did := s.take(); !strings.HasPrefix(got, tt.want) || strings.Contains(got, "/home") || did != tt.did {
				t.Errorf("got %q, did %s; want %q, %s", got, did, tt.want, tt.did)
			}
		})
	}
}

// TestPackagesAreApproved: a person sees the versions before anything is fetched.
func TestPackagesAreApproved(t *testing.T) {
	for _, choice := range []approval.Choice{approval.ThisCall, approval.No} {
		t.Run(string(choice), func(t *testing.T) {
			questions := approval.New(approval.Config{Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
			t.Cleanup(questions.Close)
			s := &depot{}
			x := withPackages(t, s, questions, "ask")
			const asked = "reqeusts; os_name != 'this is safe' httpx"
			done := make(chan error, 1)
			go func() {
				_, err := x.Call(t.Context(), wire.Call{Method: wire.MethodInstallPackages, Params: json.RawMessage(`{"packages":["reqeusts; os_name != 'this is safe'","httpx"]}`)})
				done <- err
			}()
			q, err := questions.Next(t.Context(), func(*approval.Question) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			text := q.Text()
			if strings.Contains(text, "this is safe") {
				t.Errorf("got %s, want nothing that code says", text)
			}
			for _, want := range []string{"installing reqeusts httpx", `adds = "reqeusts 1, httpx 1"`, "one letter away from that of the popular requests"} {
				if !strings.Contains(text, want) {
					t.Errorf("got %s, want %q in it", text, want)
				}
			}
			if did, want := s.take(), "[["+asked+"] map[]] []"; did != want {
				t.Errorf("before the answer: got %s, want %s", did, want)
			}
			if _, err := questions.Answer(approval.Answer{ID: q.ID, Revision: q.Revision, Choice: choice, Words: "not these", By: "test"}); err != nil {
				t.Fatal(err)
			}
			err = <-done
			got, want := fmt.Sprint(err, s.take()), "<nil>[] ["+asked+"]"
			if choice == approval.No {
				want = "the user did not allow reqeusts httpx: not these[] []"
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestUnasked: before a person has agreed an index learns of few names.
func TestUnasked(t *testing.T) {
	s := &depot{}
	x := withPackages(t, s, nil, "ask", "pandas")
	call := func(params string) string {
		_, err := x.Call(t.Context(), wire.Call{Method: wire.MethodInstallPackages, Params: json.RawMessage(params)})
		return fmt.Sprint(err)
	}
	for i := range maxUnasked + 1 {
		if got := call(`{"packages":["pandas"]}`); got != "<nil>" {
			t.Errorf("a listed package: got %s, want no error", got)
		}
		got, want := call(fmt.Sprintf(`{"packages":["secret-%d"]}`, i)), "asks about what it does not list"
		if i == maxUnasked {
			want = "to which the user has not agreed"
		}
		if !strings.Contains(got, want) {
			t.Errorf("%d: got %s, want %q in it", i, got, want)
		}
	}
	if got := strings.Count(s.take(), "secret"); got != maxUnasked {
		t.Errorf("got %d names at the index, want %d", got, maxUnasked)
	}
}

// TestPackagesAtOnce: an installation counts what another one was offered while it
// waited, and has its archive, because the guest may not have added it yet.
func TestPackagesAtOnce(t *testing.T) {
	var a additions
	a.offer(wire.Packages{Archive: "aa", Packages: []wire.Package{{Name: "before", Version: "1"}}})
	n := a.count()
	for _, archive := range []string{"bb", "cc"} {
		a.offer(wire.Packages{Archive: archive, Packages: []wire.Package{{Name: archive, Version: "1"}, {Name: "six", Version: "2"}}})
	}
	installed := map[string]string{"six": "1"}
	got := fmt.Sprint(a.since(n, installed), installed)
	if want := "[bb cc] map[bb:1 cc:1 six:1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestPackageRule: what the manual and hints say of installing.
func TestPackageRule(t *testing.T) {
	for _, tt := range []struct {
		policy     string
		name, want string
	}{
		{"", "", "none[]"}, {"any", "", "any[]"}, {"any", "httpx", "any[]"}, {"any", "reqeusts", "ask[]"}, {"pandas", "pandas", "listed[pandas]"},
		{"pandas>=2", "httpx", "none[pandas>=2]"}, {"ask pandas", "httpx", "ask[pandas]"}, {"ask pandas", "pandsa", "none[pandas]"},
	} {
		if got, listed := withPackages(t, &depot{}, nil, strings.Fields(tt.policy)...).PackageRule(tt.name); got+fmt.Sprint(listed) != tt.want {
			t.Errorf("%q, %q: got %s%s, want %s", tt.policy, tt.name, got, listed, tt.want)
		}
	}
	if got, _ := withPackages(t, nil, nil, "any").PackageRule(""); got != "none" {
		t.Errorf("without a source: got %s, want none", got)
	}
}

// FuzzInstall: what is read of a request is within its bounds.
func FuzzInstall(f *testing.F) {
	f.Add(`{"packages":["pandas>=2"],"target":{},"installed":{"numpy":"2.1.0"},"interpreter":"/usr/bin/python3"}`)
	f.Add(`{"packages":[1],"installed":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseInstall(json.RawMessage(text))
		if err != nil {
			var forCode *wire.CallError
			if !errors.As(err, &forCode) {
				t.Errorf("got %T", err)
			}
			return
		}
		if len(p.Packages) > maxRequirements || p.Installed == nil {
			t.Errorf("got %+v", p)
		}
	})
}

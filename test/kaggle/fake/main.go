// Command fake is a Kaggle for tests in other languages: it prints one line of
// JSON with its addresses, and ends with its standard input. Faults are
// injected, and its journal is read, at the control address.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
)

func main() {
	python := flag.String("python", "", "interpreter that runs scripts; empty: they are not run")
	dir := flag.String("dir", "", "where sessions have their files")
	user := flag.String("user", "ada", "name of the account")
	key := flag.String("key", "", "its legacy key")
	tokens := flag.String("tokens", "", "its access tokens, with commas between")
	refresh := flag.String("refresh", "", "its OAuth refresh token")
	gpuHours := flag.Float64("gpu-hours", 0, "GPU quota that it has used")
	env := flag.String("env", "", "NAME=VALUE for scripts, with commas between")
	flag.Parse()
	if err := run(*dir, *python, *user, &kaggletest.Account{
		Key: *key, Tokens: list(*tokens), Refresh: *refresh, GPUUsed: time.Duration(*gpuHours * float64(time.Hour)),
	}, list(*env)); err != nil {
		fmt.Fprintln(os.Stderr, "fake:", err)
		os.Exit(1)
	}
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func run(dir, python, user string, account *kaggletest.Account, env []string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("-dir %q: a directory is needed", dir)
	}
	s := kaggletest.New(kaggletest.Options{Python: python, Dir: dir, Accounts: map[string]*kaggletest.Account{user: account}, Env: env})
	defer s.Close()
	control := httptest.NewServer(controls(s))
	defer control.Close()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"url": s.URL(), "storage": s.StorageURL(), "control": control.URL}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func controls(s *kaggletest.Server) http.Handler {
	answer := func(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /journal", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Journal()) })
	mux.HandleFunc("GET /kernels", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Kernels()) })
	mux.HandleFunc("GET /sessions", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]int{"sessions": s.Sessions(), "ghosts": s.Ghosts()})
	})
	mux.HandleFunc("POST /fault", func(w http.ResponseWriter, r *http.Request) {
		var f kaggletest.Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.Inject(f)
		answer(w, true)
	})
	mux.HandleFunc("POST /heal", func(w http.ResponseWriter, _ *http.Request) { s.Heal(); answer(w, true) })
	mux.HandleFunc("POST /hold", func(w http.ResponseWriter, _ *http.Request) { s.Hold(true); answer(w, true) })
	mux.HandleFunc("POST /release", func(w http.ResponseWriter, _ *http.Request) { s.Hold(false); answer(w, true) })
	return mux
}

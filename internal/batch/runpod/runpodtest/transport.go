package runpodtest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// ErrBroken is a connection that a fault broke.
var ErrBroken = errors.New("runpodtest: connection reset")

// Transport carries requests to the server without a network, so that tests
// can run in a bubble of testing/synctest.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ h http.Handler }

// answerWriter collects an answer.
type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
	broken bool
}

func (w *answerWriter) Header() http.Header { return w.header }
func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}
func (w *answerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(200)
	return w.body.Write(p)
}

// brokenBody ends in the middle.
type brokenBody struct{ io.Reader }

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
func (brokenBody) Close() error { return nil }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	w := &answerWriter{header: http.Header{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					panic(p)
				}
				w.broken = true
			}
		}()
		t.h.ServeHTTP(w, in)
	}()
	<-done // the handler returns soon when the request's context is done
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if w.broken && w.status == 0 {
		return nil, ErrBroken
	}
	res := &http.Response{Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r}
	if w.broken {
		res.Body = brokenBody{&w.body}
		res.ContentLength = -1
	}
	if w.status == 0 {
		res.StatusCode = 200
	}
	return res, nil
}

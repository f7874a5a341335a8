package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

// Files move as a sequence of JSON values in the body of a request or an answer: parts,
// and how it ended, without which it was cut off.

// moved is one of these values.
type moved struct {
	*wire.TaskFile
	End     bool     `json:"end,omitempty"`
	Failure *failure `json:"failure,omitempty"` // with End
}

// receive reads parts until the end, which is nil.
func receive(in *json.Decoder) (*wire.TaskFile, error) {
	var m moved
	switch err := in.Decode(&m); {
	case err != nil:
		return nil, fmt.Errorf("the files were cut off: %w", err)
	case m.Failure != nil:
		return nil, &refused{*m.Failure}
	case !m.End && m.TaskFile == nil:
		return nil, errors.New("neither a part of a file nor the end")
	case m.End:
		return nil, nil
	}
	return m.TaskFile, nil
}

// transfers adds what moves files.
func (s *Server) transfers(mux *http.ServeMux) {
	mux.HandleFunc("POST /put", s.moving(func(ctx context.Context, r request, in *json.Decoder, _ *json.Encoder) error {
		return s.sessions.Put(ctx, r.Key, func() (*wire.TaskFile, error) { return receive(in) })
	}))
	mux.HandleFunc("POST /take", s.moving(func(ctx context.Context, r request, _ *json.Decoder, out *json.Encoder) error {
		return s.sessions.Take(ctx, r.Key, r.Paths, func(f wire.TaskFile) error { return out.Encode(moved{TaskFile: &f}) })
	}))
}

// moving decodes a request, which may go on after that, and ends the answer. How long
// the client may take is bounded where it makes the sandbox wait.
func (s *Server) moving(do func(context.Context, request, *json.Decoder, *json.Encoder) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			panic(http.ErrAbortHandler) // as if the process had ended
		}
		defer s.working.Done()
		in, out := json.NewDecoder(r.Body), json.NewEncoder(w)
		var asked request
		err := in.Decode(&asked)
		if err == nil {
			err = do(r.Context(), asked, in, out)
		}
		end := moved{End: true}
		if err != nil {
			f := failureOf(err)
			end.Failure = &f
			_, _ = io.Copy(io.Discard, r.Body) // or the client might not read the answer
		}
		_ = out.Encode(end) // the client has gone, or gets it
	}
}

// Put puts files into a session's workspace: next returns nil at the end.
func (c *Client) Put(ctx context.Context, key session.Key, next func() (*wire.TaskFile, error)) error {
	body, to := io.Pipe()
	defer body.Close()
	var failed error // of next
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		out := json.NewEncoder(to)
		err := out.Encode(request{Key: key})
		for err == nil {
			var f *wire.TaskFile
			if f, failed = next(); failed != nil {
				err = failed
				break
			}
			if f == nil {
				err = out.Encode(moved{End: true})
				break
			}
			err = out.Encode(moved{TaskFile: f})
		}
		_ = to.CloseWithError(err)
	}()
	err := c.move(ctx, "/put", body, func(wire.TaskFile) error { return errors.New("it sent a file") })
	_ = body.Close()
	<-sent
	if failed != nil {
		return failed
	}
	return err
}

// Take gives files of a session's workspace.
func (c *Client) Take(ctx context.Context, key session.Key, paths []string, give func(wire.TaskFile) error) error {
	asked, to := io.Pipe()
	go func() { _ = to.CloseWithError(json.NewEncoder(to).Encode(request{Key: key, Paths: paths})) }()
	defer asked.Close()
	return c.move(ctx, "/take", asked, give)
}

// move sends a request and reads the parts of the answer.
func (c *Client) move(ctx context.Context, path string, body io.Reader, give func(wire.TaskFile) error) error {
	resp, err := c.send(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("process %d, perhaps of another version, answered %s", c.PID(), resp.Status)
	}
	for in := json.NewDecoder(resp.Body); ; {
		f, err := receive(in)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || f == nil {
			return err
		}
		if err := give(*f); err != nil {
			return err
		}
	}
}

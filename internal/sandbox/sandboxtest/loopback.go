//go:build linux

package sandboxtest

import (
	"strings"
	"testing"
)

// loopbackTalk is a server and its client in one sandbox, over each loopback
// address.
const loopbackTalk = `
import socket
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    try:
        server = socket.socket(family)
        server.bind((address, 0))
    except OSError as e:
        print(address, e.strerror)
        continue
    server.listen(1)
    client = socket.create_connection(server.getsockname()[:2], 5)
    client.sendall(b"through it")
    print(address, server.accept()[0].recv(64).decode())
`

// loopback tests that a sandbox has its own loopback and no other network.
func (s *suite) loopback(t *testing.T) {
	s.needProcesses(t)
	out := s.start(t, s.backend(t), s.spec()).must(t, loopbackTalk)
	if !strings.HasPrefix(out, "127.0.0.1 through it\n") {
		t.Error(out)
	}
}

// restoredLoopback tests that a restored sandbox has the same as a fresh one.
func (s *suite) restoredLoopback(t *testing.T) {
	s.needProcesses(t)
	b := s.backend(t)
	spec := s.spec()
	sess := s.start(t, b, spec)
	fresh := sess.must(t, loopbackTalk)
	if got := s.restore(t, b, s.take(t, sess, spec, false)).must(t, loopbackTalk); got != fresh {
		t.Errorf("a restored sandbox: %sa fresh one: %s", got, fresh)
	}
}

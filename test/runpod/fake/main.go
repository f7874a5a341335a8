// Command fake serves RunPod's double on a loopback port, for tests in other
// languages. It prints its address as the first line, and ends when its
// standard input does.
//
//	go run ./test/runpod/fake [-take 1s] ENDPOINT...
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/runpodtest"
)

func main() {
	take := flag.Duration("take", time.Second, "how long a worker's poll is held")
	silence := flag.Duration("silence", time.Minute, "how long a worker may say nothing")
	flag.Parse()
	s := runpodtest.New(runpodtest.Options{Endpoints: flag.Args(), TakeWait: *take, Silence: *silence})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	base := "http://" + l.Addr().String()
	fmt.Println(base)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(l, s.Control(base)))
	os.Exit(1)
}

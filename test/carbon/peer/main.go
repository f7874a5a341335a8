// Command peer is Sallyport's side of the comparison with the real codecarbon.
//
//	peer api      serves the dashboard of the tests on 127.0.0.1, prints its
//	              URL, and, when standard input ends, what was posted, as JSON
//	peer tables   reads JSON {"cpus": [names], "places": [places], "memory": [GB]}
//	              and answers with what internal/usage/carbon says of each
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon/codecarbontest"
)

func main() {
	what := ""
	if len(os.Args) > 1 {
		what = os.Args[1]
	}
	var err error
	switch what {
	case "api":
		err = api()
	case "tables":
		err = tables()
	default:
		err = fmt.Errorf("peer api | peer tables")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func api() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	dashboard := &codecarbontest.API{Token: "cpt_peer"}
	server := &http.Server{Handler: dashboard, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with the program
	fmt.Println("http://" + l.Addr().String())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"runs": dashboard.Runs(), "emissions": dashboard.Emissions(""), "requests": dashboard.Requests(),
	})
}

func tables() error {
	var ask struct {
		CPUs   []string  `json:"cpus"`
		Places []string  `json:"places"`
		Memory []float64 `json:"memory"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&ask); err != nil {
		return err
	}
	all, err := carbon.Load()
	if err != nil {
		return err
	}
	answer := struct {
		CPUs   []*float64 `json:"cpus"`
		Places []*float64 `json:"places"`
		Memory []float64  `json:"memory"`
	}{}
	for _, name := range ask.CPUs {
		watts, known := all.TDP(name)
		answer.CPUs = append(answer.CPUs, pointer(watts, known))
	}
	for _, text := range ask.Places {
		l, err := carbon.ParseLocation(text)
		if err != nil {
			return err
		}
		g, err := all.GridAsCodeCarbon(l)
		answer.Places = append(answer.Places, pointer(g.GramsPerKWh, err == nil))
	}
	for _, gb := range ask.Memory {
		_, watts := carbon.Modules(gb, false)
		answer.Memory = append(answer.Memory, watts)
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func pointer(f float64, known bool) *float64 {
	if !known {
		return nil
	}
	return &f
}

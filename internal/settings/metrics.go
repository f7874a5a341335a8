package settings

import (
	"errors"
	"net"
	"strconv"
	"strings"
)

// metricsAddress is an address to listen at. One without a host is this machine's
// own alone.
func metricsAddress(field *string) *scalar[string] {
	const form = "a port, or HOST:PORT"
	return &scalar[string]{
		field: field,
		read: func(text string, _ place) (string, error) {
			host, port, err := net.SplitHostPort(text)
			if err != nil {
				host, port = "", text
			}
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strings.ContainsAny(host, " /") {
				return "", errors.New("not " + form)
			}
			if host == "" {
				host = "127.0.0.1"
			}
			return net.JoinHostPort(host, port), nil
		},
		print: func(s string) string { return s },
		forms: asText | asNumber, name: "address", span: form,
	}
}

package remote

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The variables that name authorities, as in crypto/x509 and OpenSSL.
const (
	certFileVariable = "SSL_CERT_FILE"
	certDirVariable  = "SSL_CERT_DIR"
)

// Where crypto/x509 looks for Linux's authorities without them.
var (
	systemCertFiles = []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
		"/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	}
	systemCertDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// authorities returns those that the client's variables name: crypto/x509 knows
// only this process's own. Nil means that they are the same.
func (n *Network) authorities() (*x509.CertPool, error) {
	if runtime.GOOS != "linux" || n.certFile == os.Getenv(certFileVariable) && n.certDir == os.Getenv(certDirVariable) {
		return nil, nil
	}
	files, dirs := systemCertFiles, systemCertDirs
	if n.certFile != "" {
		files = []string{n.certFile}
	}
	if n.certDir != "" {
		dirs = strings.Split(n.certDir, ":")
	}
	pool, found := x509.NewCertPool(), false
	read := func(file string) (ok bool) {
		pem, err := readBounded(file, maxCertificates)
		ok = err == nil && pool.AppendCertsFromPEM(pem)
		found = found || ok
		return ok
	}
	for _, file := range files {
		if read(file) {
			break
		}
	}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			read(filepath.Join(dir, e.Name()))
		}
	}
	if !found {
		return nil, errors.New("no certificate of an authority was found: look at " + certFileVariable + " and " + certDirVariable)
	}
	return pool, nil
}

package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"

	"github.com/sallyport/sallyport/internal/store"
)

// eraNames are the names of eras in files.
var eraNames = map[era]string{eraHandshake: "handshake", eraStateless: "stateless", eraEvents: "events"}

// eraFile returns the file that has the era of a server of this name, and the
// prefix of its contents: the era applies only to the definition that it was
// found with.
func eraFile(def Definition) (file, prefix string) {
	written := def.Digest()
	h := sha256.New()
	h.Write(written[:])
	h.Write([]byte(def.CommandLine()))
	return store.FileName(def.Name, ""), hex.EncodeToString(h.Sum(nil)) + " "
}

// recall returns what an earlier run found.
func (p *Pool) recall(def Definition) era {
	file, prefix := eraFile(def)
	text, err := p.opts.Eras.Read(file, 1<<10)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, store.ErrNoPlace) {
			p.opts.Log.Debug("the era of a server cannot be read", "server", def.Name, "err", err)
		}
		return eraUnknown
	}
	word, ok := strings.CutPrefix(strings.TrimSpace(string(text)), prefix)
	for e, name := range eraNames {
		if ok && word == name {
			return e
		}
	}
	return eraUnknown
}

// remember writes down what worked.
func (p *Pool) remember(def Definition, e era) {
	file, prefix := eraFile(def)
	err := p.opts.Eras.Write(file, []byte(prefix+eraNames[e]+"\n"))
	if err != nil && !errors.Is(err, store.ErrNoPlace) {
		p.opts.Log.Warn("the era of a server cannot be written down", "server", def.Name, "err", err)
	}
}

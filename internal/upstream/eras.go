package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"

	"sallyport/internal/state"
)

// eraNames are how eras are written down.
var eraNames = map[era]string{eraHandshake: "handshake", eraStateless: "stateless", eraEvents: "events"}

// eraFile is where the era of a server of this name is written, and what stands
// before it there: it counts only for the definition that it was found with.
func eraFile(def Definition) (file, prefix string) {
	written := def.Digest()
	h := sha256.New()
	h.Write(written[:])
	h.Write([]byte(def.CommandLine()))
	return state.FileName(def.Name, ""), hex.EncodeToString(h.Sum(nil)) + " "
}

// recall returns what an earlier run has found.
func (m *Manager) recall(def Definition) era {
	file, prefix := eraFile(def)
	text, err := m.opts.Eras.Read(file, 1<<10)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, state.ErrNoPlace) {
			m.opts.Log.Debug("the era of a server cannot be read", "server", def.Name, "err", err)
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

// remember writes down what has worked.
func (m *Manager) remember(def Definition, e era) {
	file, prefix := eraFile(def)
	err := m.opts.Eras.Write(file, []byte(prefix+eraNames[e]+"\n"))
	if err != nil && !errors.Is(err, state.ErrNoPlace) {
		m.opts.Log.Warn("the era of a server cannot be written down", "server", def.Name, "err", err)
	}
}

package broker

import (
	"encoding/json"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// maxHostPath bounds the paths that code may ask about.
const maxHostPath = 4096

// folders returns for code and people what a sandbox sees of the host. No path of the
// host is in it.
func folders(mounts []sandbox.Mount) []string {
	var list []string
	for _, m := range mounts {
		list = append(list, m.String())
	}
	return list
}

// folderFacts returns what a hint about a missing file depends on. The sandbox learns
// of the host's paths only whether one that its code wrote lies in a folder that it
// sees anyway.
func folderFacts(mounts []sandbox.Mount, params json.RawMessage) ([]byte, error) {
	var p struct {
		Path string `json:"path"`
	}
	if err := json.Unmarshal(params, &p); err != nil || len(p.Path) > maxHostPath {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'path' must be a short string"}
	}
	f := wire.FolderFacts{Folders: folders(mounts)}
	best := 0 // the innermost folder counts
	for _, m := range mounts {
		if place, ok := m.Place(p.Path); ok && len(m.Source) > best {
			best, f.Place, f.Folder, f.ReadOnly = len(m.Source), place, m.Target, m.Mode == sandbox.ReadOnly
		}
	}
	if best == 0 {
		for _, m := range mounts {
			if p.Path == m.Target || strings.HasPrefix(p.Path, m.Target+"/") {
				f.Folder, f.ReadOnly = m.Target, m.Mode == sandbox.ReadOnly
			}
		}
	}
	return json.Marshal(f)
}

package connect

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Trust says if Gemini CLI connects no MCP servers in the working directory, because
// its user does not trust that folder, or has not been asked yet.
func (m Machine) Trust(t definitions.Target) string {
	if t.Client.Name != "gemini" || m.Places.Dir == "" {
		return ""
	}
	value := func(file string, path ...string) any {
		text, exists, err := Read(file, "")
		if err != nil || !exists {
			return nil
		}
		v, err := edit.Get(edit.JSONC, text, edit.At(path...))
		if err != nil {
			return nil
		}
		return v
	}
	settings := filepath.Join(m.Places.Home, ".gemini", "settings.json")
	enabled, chosen := value(settings, "security", "folderTrust", "enabled").(bool)
	if chosen && !enabled {
		return ""
	}
	file := ""
	if m.Places.Env != nil {
		file, _ = m.Places.Env("GEMINI_CLI_TRUSTED_FOLDERS_PATH")
	}
	file = cmp.Or(file, filepath.Join(m.Places.Home, ".gemini", "trustedFolders.json"))
	rules, _ := value(file).(map[string]any)
	// The longest rule counts.
	longest, level := -1, ""
	for path, value := range rules {
		folder := path
		if value == "TRUST_PARENT" {
			folder = filepath.Dir(path)
		}
		if len(path) > longest && below(m.Places.Dir, folder) {
			longest = len(path)
			level, _ = value.(string)
		}
	}
	switch {
	case level == "DO_NOT_TRUST":
		return fmt.Sprintf("Gemini CLI does not trust the folder %s, and connects no MCP servers there. Trust it with /permissions in Gemini CLI, which changes %s.", m.Places.Dir, file)
	case level == "" && enabled:
		return fmt.Sprintf("Gemini CLI connects MCP servers only in folders that you trust, and does not know %s yet. It asks when it starts there.", m.Places.Dir)
	}
	return ""
}

// below reports whether a folder is another, or in it, wherever links lead.
func below(dir, folder string) bool {
	for _, path := range []*string{&dir, &folder} {
		if real, err := filepath.EvalSymlinks(*path); err == nil {
			*path = real
		}
	}
	rel, err := filepath.Rel(folder, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

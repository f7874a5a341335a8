package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/sallyport/sallyport/internal/folder"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// MountsKey is the key of the setting with the folders that code sees.
const MountsKey = "files.mounts"

// Artifacts configures what is kept of the files that code leaves.
type Artifacts struct {
	Keep    time.Duration // 0: forever
	MaxDisk int64         // 0: nothing is kept
}

func declareArtifacts(a *Artifacts) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "artifacts.keep", value: duration(&a.Keep, time.Minute, 3650*day).or("forever", 0), initial: "720h",
			help: "How long the files that code creates or changes in `/workspace` are kept on this machine, for `sallyport artifacts` and for MCP clients."},
		{key: "artifacts.maxDisk", value: size(&a.MaxDisk, mib, 16<<40).or("none", 0), initial: "4g",
			help: "Disk space for all of them. To make room, the oldest are removed. `none` keeps nothing."},
	}
}

func declareFiles(f *Files) []*setting {
	return []*setting{
		{key: MountsKey, value: newMounts(&f.Mounts), fileOnly: true,
			help: "Folders of this computer that the code of every session sees, such as `~/data`, `~/data:/mnt/data` or `~/data:rw`, or with keys: `{host: ~/data, sandbox: /mnt/data, mode: rw}`. The place in the sandbox is `/mnt/` and the folder's name unless you name one. The mode is `ro` (read-only, the default), `copy` (the sandbox gets a copy of its own) or `rw` (code changes your files). A session keeps the folders that it began with. Your home directory as a whole, its hidden folders and directories of the system are refused."},
		{key: "files.roots", value: boolean(&f.Roots), initial: "false", fileOnly: true,
			help: "Whether a session also sees the folders that its MCP client names as roots, read-only, at `/roots/NAME`: mostly the project that is open in an editor."},
	}
}

// mounts is a list of folders.
type mounts struct{ *words }

func newMounts(field *[]string) mounts {
	return mounts{&words{field: field, name: "list of folders", span: "`DIR[:PATH][:MODE]`", read: func(s string, at place) (string, error) {
		m, err := folder.Parse(s)
		if err != nil {
			return "", err
		}
		// Whether the folder exists and may be seen is known when a session begins.
		if m.Source, err = at.absolute(m.Source); err != nil {
			return "", fmt.Errorf("folder %s: %w", quote(s), err)
		}
		return folder.Format(m), nil
	}}}
}

func (v mounts) setList(parts []string, at place) error {
	before := *v.field
	if err := v.words.setList(parts, at); err != nil {
		return err
	}
	var all []sandbox.Mount
	for _, text := range *v.field {
		if m, err := folder.Parse(text); err == nil && filepath.IsAbs(m.Source) {
			all = append(all, folder.WithDefaults(m))
		}
	}
	err := sandbox.CheckMounts(all)
	if err != nil {
		*v.field = before
	}
	return err
}

func (v mounts) set(text string, at place) error {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return v.setList(parts, at)
}

// section reads a folder with keys.
func (v mounts) section(pairs []*ast.MappingValueNode) (string, error) {
	var m sandbox.Mount
	for _, pair := range pairs {
		key, wrong := KeyOf(pair.Key)
		if wrong != "" {
			return "", errors.New(wrong)
		}
		value, form := scalarText(pair.Value)
		if form != asText || value == "" {
			return "", fmt.Errorf("%s of a folder: %s stands where a string is expected", key, DescribeNode(pair.Value))
		}
		switch key {
		case "host":
			m.Source = value
		case "sandbox":
			m.Target = value
		case "mode":
			m.Mode = sandbox.MountMode(value)
		default:
			return "", fmt.Errorf("a folder has no %s: it has host, sandbox and mode", quote(key))
		}
	}
	switch m.Mode {
	case "", sandbox.ReadOnly, sandbox.Copy, sandbox.ReadWrite:
	default:
		return "", fmt.Errorf("folder %s: mode %s: write ro, copy or rw", quote(m.Source), quote(string(m.Mode)))
	}
	text := folder.Format(m)
	if again, err := folder.Parse(text); err == nil && again != m {
		return "", fmt.Errorf("folder %s: a path with a colon cannot be written here. Make a link to it", quote(m.Source))
	}
	return text, nil
}

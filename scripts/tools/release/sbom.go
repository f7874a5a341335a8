package main

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// provenance writes what is inside the executables, and from what and how
// everything was made.
func (r *release) provenance() error {
	goVersion, err := r.contents()
	if err != nil {
		return err
	}
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var subjects []any
	for _, s := range sums {
		subjects = append(subjects, map[string]any{"name": s.name, "digest": map[string]string{"sha256": s.sha256}})
	}
	ref := "refs/tags/v" + r.version.String()
	if r.snapshot {
		ref = "HEAD"
	}
	statement := map[string]any{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          project + "/blob/main/scripts/release",
				"externalParameters": map[string]any{"ref": ref, "version": r.version.String(), "snapshot": r.snapshot},
				"resolvedDependencies": []any{
					map[string]any{"uri": "git+" + project + "@" + ref, "digest": map[string]string{"gitCommit": r.commit}},
					map[string]any{"uri": "pkg:golang/stdlib@" + goVersion},
				},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": project + "/blob/main/scripts/release"}},
		},
	}
	data, err := json.Marshal(statement)
	if err != nil {
		return err
	}
	return r.write("sallyport_"+r.version.String()+".intoto.jsonl", append(data, '\n'))
}

// contents writes the modules that the executables link, in CycloneDX's form,
// and returns the version of Go.
func (r *release) contents() (string, error) {
	licences, err := r.licences()
	if err != nil {
		return "", err
	}
	goVersion, modules := "", map[string]cdx.Component{}
	for _, p := range r.programs {
		info, err := buildinfo.Read(bytes.NewReader(p.data))
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		goVersion = strings.TrimPrefix(info.GoVersion, "go")
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path] = component(m.Path, m.Version, licences[m.Path])
		}
	}
	std := component("stdlib", goVersion, "BSD-3-Clause")
	std.Description = "The Go standard library and runtime"
	modules["stdlib"] = std
	main := component(module, "v"+r.version.String(), "Apache-2.0")
	main.Type = cdx.ComponentTypeApplication
	main.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: project}}
	bom := cdx.NewBOM()
	// The same contents have the same number.
	id := sha1.Sum([]byte(project + "@" + r.commit + "@" + r.version.String() + "@" + goVersion))
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	bom.Metadata = &cdx.Metadata{Timestamp: r.time.Format("2006-01-02T15:04:05Z"), Component: &main}
	components := slices.SortedFunc(maps.Values(modules), func(a, b cdx.Component) int { return cmp.Compare(a.Name, b.Name) })
	bom.Components = &components
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return "", err
	}
	return goVersion, r.write("sallyport_"+r.version.String()+".cdx.json", out.Bytes())
}

func component(path, version, licence string) cdx.Component {
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		BOMRef: "pkg:golang/" + path + "@" + version, PackageURL: "pkg:golang/" + path + "@" + version,
	}
	if licence != "" {
		c.Licenses = &cdx.Licenses{{Expression: licence}}
	}
	return c
}

var noticeEntry = regexp.MustCompile(`(?m)^(\S+) v\S+\n    (\S.*)$`)

// licences reads NOTICE: each module and the expression in the line below it.
func (r *release) licences() (map[string]string, error) {
	notice, err := r.read("NOTICE")
	if err != nil {
		return nil, err
	}
	licences := map[string]string{}
	for _, m := range noticeEntry.FindAllSubmatch(notice, -1) {
		licences[string(m[1])] = string(m[2])
	}
	return licences, nil
}

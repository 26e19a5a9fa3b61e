package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/leaderlease/go/internal/modules"
)

// bom is a CycloneDX document, version 1.5: https://cyclonedx.org/docs/1.5/json.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

// component is a module, or the program.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref  string   `json:"ref"`
	Uses []string `json:"dependsOn"`
}

// newComponent names a module as package URLs do.
func newComponent(kind, path, version, fragment string) component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	if fragment != "" {
		purl += "#" + fragment
	}
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

// newBOM lists what a program was built from, by what it says itself. Modules of this repository
// have no version in a workspace: they are released with one number.
func newBOM(program string, info *debug.BuildInfo, own []modules.Module, version string) (*bom, error) {
	main := newComponent("application", info.Main.Path, version, "cmd/"+program)
	main.Name = program
	for _, key := range []string{"vcs.revision", "GOOS", "GOARCH", "CGO_ENABLED"} {
		main.Properties = append(main.Properties, property{"go:" + key, setting(info, key)})
	}
	b := &bom{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   metadata{Timestamp: setting(info, "vcs.time"), Component: main},
		Components: []component{newComponent("library", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")},
	}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: go install could not build this program", dep.Path, dep.Replace.Path)
		}
		of := dep.Version
		if modules.Own(own, dep.Path) {
			of = version
		}
		c := newComponent("library", dep.Path, of, "")
		if dep.Sum != "" {
			c.Properties = []property{{"go:sum", dep.Sum}}
		}
		b.Components = append(b.Components, c)
	}
	uses := dependency{Ref: main.Ref}
	for _, c := range b.Components {
		uses.Uses = append(uses.Uses, c.Ref)
	}
	b.Dependencies = []dependency{uses}
	return b, nil
}

func writeSBOM(path, program string, info *debug.BuildInfo, r *release) error {
	b, err := newBOM(program, info, r.own, r.version)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

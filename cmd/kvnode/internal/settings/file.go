package settings

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// sections of etcd's file hold settings without their prefix.
var sections = map[string]string{
	"client-transport-security": "",
	"peer-transport-security":   "peer-",
	"socket-options":            "socket-",
	"discovery-config":          "discovery-",
}

// sectionNames are keys of sections that are no part of the flag's name.
var sectionNames = map[string]string{
	"peer-allowed-cn":       "peer-cert-allowed-cn",
	"peer-allowed-hostname": "peer-cert-allowed-hostname",
	"allowed-hostname":      "client-cert-allowed-hostname",
}

// readFile reads a configuration file. What can be understood of it comes back
// beside the errors, so that all is reported together.
func readFile(path string) (map[string]given, []error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, []error{fmt.Errorf("--config-file: %w", err)}
	}
	defer func() { _ = f.Close() }() // it was only read
	decoder := yaml.NewDecoder(f)
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // empty: nothing is set
	case err != nil:
		return nil, []error{fmt.Errorf("--config-file %s: %w", path, err)}
	}
	r := &fileReader{path: path, layer: make(map[string]given), lines: make(map[string]int)}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.fail(&doc, "a second document follows")
	}
	r.mapping("", false, doc.Content[0])
	return r.layer, r.errs
}

type fileReader struct {
	path  string
	layer map[string]given
	lines map[string]int // where a setting stands
	errs  []error
}

func (r *fileReader) fail(at *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s", r.path, at.Line, fmt.Sprintf(format, args...)))
}

// mapping reads all keys of one mapping; prefix makes those of a section settings.
func (r *fileReader) mapping(prefix string, inSection bool, m *yaml.Node) {
	if m.Kind != yaml.MappingNode {
		if m.Tag != "!!null" {
			r.fail(m, "must be keys with values, as in name: node1")
		}
		return
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, content := m.Content[i], m.Content[i+1]
		if section, ok := sections[key.Value]; ok && !inSection {
			r.mapping(section, true, content)
			continue
		}
		name := prefix + key.Value
		if flag, ok := sectionNames[name]; ok && inSection {
			name = flag
		}
		r.setting(name, key, content)
	}
}

func (r *fileReader) setting(name string, key, content *yaml.Node) {
	s, ok := byName[name]
	if !ok {
		r.fail(key, "unknown key %q%s", key.Value, Hint(name, slices.Collect(maps.Keys(byName)), "%s"))
		return
	}
	if line, ok := r.lines[name]; ok {
		r.fail(key, "%s is set here and in line %d", name, line)
		return
	}
	r.lines[name] = key.Line
	text, ok := r.text(s, content)
	if ok {
		r.layer[name] = given{text, fmt.Sprintf("file %s:%d", r.path, key.Line)}
	}
}

// text returns what would be said with a flag.
func (r *fileReader) text(s *setting, content *yaml.Node) (string, bool) {
	switch {
	case content.Kind == yaml.AliasNode:
		return r.text(s, content.Alias)
	case content.Tag == "!!null":
		return "", false
	case content.Kind == yaml.ScalarNode && content.Tag == "!!int" && s.isDuration():
		return content.Value + "ns", true // as etcd reads it
	case content.Kind == yaml.ScalarNode:
		return content.Value, true
	case content.Kind == yaml.SequenceNode:
		var parts []string
		for _, item := range content.Content {
			if item.Kind != yaml.ScalarNode {
				r.fail(item, "%s must be a list of plain values", s.name)
				return "", false
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), true
	default:
		r.fail(content, "%s must be a plain value", s.name)
		return "", false
	}
}

func (s *setting) isDuration() bool {
	if s.now != "" {
		return byName[s.now].isDuration()
	}
	return s.honoured() && s.field(new(Config)).Type() == kindDuration
}

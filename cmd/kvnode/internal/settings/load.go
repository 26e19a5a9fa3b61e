package settings

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Loaded is the configuration in effect.
type Loaded struct {
	Config
	// Warnings name settings that are known and have no effect.
	Warnings []string
	from     map[string]string // where a setting's value came from
}

// given is a value before it is understood.
type given struct {
	text string
	from string // to be read after "from"
}

// Load builds the configuration from the flags that were set, the environment
// (os.Environ) and the file that either of them names. It reports all errors
// together, also when it returns a Loaded.
func Load(flags map[string]string, environ []string) (*Loaded, error) {
	l := &Loaded{from: make(map[string]string)}
	env, envErrs := l.readEnv(environ)
	errs := envErrs

	layers := []map[string]given{nil, env, fromFlags(flags)}
	if file := last(layers, configFile); file.text != "" {
		layer, fileErrs := readFile(file.text)
		layers[0] = layer
		errs = append(errs, fileErrs...)
	}
	for _, layer := range layers {
		errs = append(errs, l.modernise(layer)...)
	}
	for i := range table {
		s := &table[i]
		if g := last(layers, s.name); g.from != "" {
			errs = append(errs, l.apply(s, g)...)
		}
	}
	l.applyFeatures()
	l.Server = l.Server.WithDefaults()
	l.Log = l.Log.withDefaults()
	if err := l.Server.Validate(); err != nil {
		errs = append(errs, err)
	}
	return l, errors.Join(errs...)
}

// Check reports what can only be seen on this machine. It changes nothing.
func (l *Loaded) Check() error { return errors.Join(l.Server.Check(), l.Log.check()) }

// last returns what the strongest layer says.
func last(layers []map[string]given, name string) given {
	for _, layer := range slices.Backward(layers) {
		if g, ok := layer[name]; ok {
			return g
		}
	}
	return given{}
}

func fromFlags(flags map[string]string) map[string]given {
	layer := make(map[string]given)
	for name, text := range flags {
		layer[name] = given{text, "flag --" + name}
	}
	return layer
}

// apply puts one value into its place, or refuses it.
func (l *Loaded) apply(s *setting, g given) []error {
	shown := strconv.Quote(g.text)
	if s.secret {
		shown = "(not shown)"
	}
	switch {
	case s.honoured():
		if err := s.field(&l.Config).Set(g.text); err != nil {
			return []error{fmt.Errorf("--%s: %w (from %s)", s.name, err, g.from)}
		}
		l.from[s.name] = g.from
	case s.asksForNothing(g.text):
		// It asks for nothing.
	case s.refused != "":
		return []error{fmt.Errorf("--%s %s is refused because %s (from %s)", s.name, shown, s.refused, g.from)}
	default:
		l.Warnings = append(l.Warnings, fmt.Sprintf("--%s %s has no effect because %s (from %s)", s.name, shown, s.ignored, g.from))
	}
	return nil
}

// asksForNothing reports whether text is etcd's default, however it is spelled.
func (s *setting) asksForNothing(text string) bool { return s.canonical(text) == s.canonical(s.etcd) }

func (s *setting) canonical(text string) string {
	if b, err := parseBool(text); err == nil && s.bool {
		return strconv.FormatBool(b)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.String()
	}
	return text
}

// notOurs are variables that etcd's users have set and that are no settings.
var notOurs = []string{"ETCD_VERSION", "ETCD_UNSUPPORTED_ARCH"}

// readEnv takes the settings out of an environment. Empty variables count as
// unset, as in etcd. Others with our prefixes are likely typing errors, but may
// also come from Kubernetes, which invents some for each service.
func (l *Loaded) readEnv(environ []string) (layer map[string]given, errs []error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if text != "" && (strings.HasPrefix(name, "KVNODE_") || strings.HasPrefix(name, "ETCD_")) {
			vars[name] = text
		}
	}
	layer = make(map[string]given)
	for _, s := range slices.Concat(table, meta) {
		envs := s.envs()
		ours, theirs := vars[envs[0]], vars[envs[1]]
		if ours != "" && theirs != "" && ours != theirs {
			errs = append(errs, fmt.Errorf("%s is %q but %s is %q; unset one of them", envs[0], ours, envs[1], theirs))
		}
		for _, name := range []string{envs[1], envs[0]} { // the stronger one last
			if text := vars[name]; text != "" {
				layer[s.name] = given{text, "environment " + name}
			}
			delete(vars, name)
		}
	}
	for _, name := range notOurs {
		delete(vars, name)
	}
	for name := range vars {
		l.Warnings = append(l.Warnings, fmt.Sprintf("environment %s is no setting of kvnode and has no effect%s", name, hintOf(name)))
	}
	slices.Sort(l.Warnings)
	return layer, errs
}

// hintOf guesses which variable was meant. The prefix is not what was mistyped.
func hintOf(name string) string {
	prefix, rest, _ := strings.Cut(name, "_")
	var known []string
	for _, s := range slices.Concat(table, meta) {
		known = append(known, strings.TrimPrefix(s.envs()[0], "KVNODE_"))
	}
	return Hint(rest, known, prefix+"_%s")
}

func (l Log) withDefaults() Log {
	if l.Level == "" {
		l.Level = "info"
	}
	if l.Format == "" {
		l.Format = "json"
	}
	return l
}

// sections of etcd's file hold settings without their prefix.
var sections = map[string]string{
	"client-transport-security": "",
	"peer-transport-security":   "peer-",
	"socket-options":            "socket-",
	"discovery-config":          "discovery-",
}

// sectionNames maps the keys in sections that differ from their flags' names to these names.
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

// mapping reads all keys of one mapping. prefix turns the keys of a section into names of settings.
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

// text returns a value as it would be given to the flag.
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

package settings

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/leaderlease/go/leaderlease"
)

// helpWidth fits most terminals.
const helpWidth = 80

// Help writes the flags of fs and the settings of the table, by topic.
func Help(w io.Writer, fs *pflag.FlagSet) error {
	var b strings.Builder
	for _, topic := range topics {
		group := pflag.NewFlagSet(string(topic), pflag.ContinueOnError)
		group.SortFlags = false
		fs.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && topicOf(f.Name) == topic {
				group.AddFlag(f)
			}
		})
		if group.HasFlags() {
			fmt.Fprintf(&b, "%s:\n", topic)
			group.VisitAll(func(f *pflag.Flag) { writeFlag(&b, f) })
			b.WriteString("\n")
		}
	}
	b.WriteString(precedence)
	writeForeign(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFlag writes the flag on one line and its help below, since names are long.
func writeFlag(b *strings.Builder, f *pflag.Flag) {
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	fmt.Fprintln(b, strings.TrimRight("  "+name+" "+kind, " "))
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	b.WriteString(wrapped("       ", strings.Fields(usage)))
}

func topicOf(name string) topic {
	if s, ok := byName[name]; ok {
		return s.topic
	}
	return others
}

const precedence = `Each setting is also an environment variable and a key of --config-file:
--data-dir is KVNODE_DATA_DIR, ETCD_DATA_DIR and data-dir. A flag goes before
the environment, the environment before the file; KVNODE_X and ETCD_X must not
disagree. --print-config shows what is in effect.

`

// writeForeign lists the settings of etcd that kvnode does not support.
func writeForeign(b *strings.Builder) {
	b.WriteString("Settings of etcd that are refused, unless they have etcd's default:\n")
	writeReasons(b, func(s *setting) string { return s.refused })
	b.WriteString("\nSettings of etcd that are accepted and have no effect:\n")
	writeReasons(b, func(s *setting) string { return s.ignored })
	b.WriteString("\nNames with experimental-, which etcd had up to 3.6, are understood as today's.\n")
	b.WriteString("\nFeatures of etcd, for --feature-gates:\n")
	for _, name := range slices.Sorted(maps.Keys(features)) {
		b.WriteString(wrapped(" ", strings.Fields(name+features[name].fate())))
	}
}

// writeReasons lists settings under their common reason, in the table's order.
func writeReasons(b *strings.Builder, reason func(*setting) string) {
	var order []string
	names := make(map[string][]string)
	for i := range table {
		s := &table[i]
		why := reason(s)
		if why == "" {
			continue
		}
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], "--"+s.name)
	}
	for _, why := range order {
		b.WriteString(wrapped(" ", strings.Fields(why+":")) + wrapped("     ", names[why]))
	}
}

// wrapped sets words in lines that begin with indent.
func wrapped(indent string, words []string) string {
	var b strings.Builder
	line := indent
	for _, word := range words {
		if len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = indent
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
	return b.String()
}

// Print writes the configuration as a file for --config-file, with the source of each
// value as a comment.
func (l *Loaded) Print(w io.Writer) error {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	for _, topic := range topics {
		heading := string(topic)
		if len(doc.Content) > 0 {
			heading = "\n" + heading // an empty line before it
		}
		for i := range table {
			s := &table[i]
			if s.topic != topic || !s.honoured() {
				continue
			}
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: s.name, HeadComment: heading}
			doc.Content = append(doc.Content, key, l.node(s))
			heading = ""
		}
	}
	encoder := yaml.NewEncoder(w)
	if err := encoder.Encode(doc); err != nil {
		return err
	}
	return encoder.Close()
}

// node returns a setting's value, with its source as a comment.
func (l *Loaded) node(s *setting) *yaml.Node {
	v := s.field(&l.Config)
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: v.String(), Tag: "!!str"}
	switch v.Type() {
	case kindBool:
		n.Tag = "!!bool"
	case "int", "ms":
		n.Tag = "!!int"
	}
	n.LineComment = "default"
	if from := l.from[s.name]; from != "" {
		n.LineComment = from
	}
	return l.noteDerived(s.name, n)
}

// noteDerived adds the value that the member derives from the other settings if this one is zero.
func (l *Loaded) noteDerived(name string, n *yaml.Node) *yaml.Node {
	node := &l.Config.Server.Node
	duration, margin := node.Lease()
	switch {
	case name == "lease-duration" && node.LeaseDuration == 0:
		n.LineComment += ", in effect: " + duration.String()
	case name == "max-clock-skew" && node.MaxClockSkew == 0:
		n.LineComment += ", in effect: " + margin.String()
	case name == "max-drift-ppm" && node.MaxDriftPPM == 0:
		n.LineComment += ", in effect: " + strconv.Itoa(leaderlease.Config{}.WithDefaults().MaxDriftPPM)
	}
	return n
}

package settings

import (
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/leaderlease/go/leaderlease"
)

// Print writes the configuration as a file that --config-file takes, with where
// each value came from beside it.
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

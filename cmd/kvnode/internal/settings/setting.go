// Package settings defines the settings of kvnode serve in one table. Each is a
// flag, two environment variables, a key of the configuration file, a line of
// --print-config and a paragraph of the help.
//
// A value comes from the first of these that has one:
//
//	--name           flag
//	KVNODE_NAME      environment
//	ETCD_NAME        environment, as etcd reads it
//	name:            configuration file (--config-file)
//	                 default
//
// If both environment variables are set and disagree, that is an error, since
// either may be the intended one.
//
// The names are etcd's, so that a command line or a unit for etcd starts kvnode.
// An etcd setting that kvnode does not support is an error that names the reason.
// If leaving it out is harmless, it is a warning. etcd's default value of such a
// setting is always accepted, since it asks for nothing.
package settings

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leaderlease/go/kvnode/server"
)

// Config holds all values that the settings set.
type Config struct {
	Server server.Config
	Log    Log
	// Supervise runs the member as a child of a supervisor (package kvnode/supervisor).
	Supervise bool
	// features is the value of etcd's feature gates, see foreign.go.
	features string
}

// Log configures the log.
type Log struct {
	// Level is debug, info, warn, error, panic or fatal.
	Level string
	// Format is json, or text, which etcd calls console.
	Format string
	// Outputs are default and stderr, which are the same, stdout, or files.
	Outputs []string
}

// topic groups settings in the help.
type topic string

const (
	member     topic = "Member"
	clustering topic = "Cluster"
	reading    topic = "Reads and leader lease"
	limits     topic = "Limits and storage"
	connection topic = "Connections"
	security   topic = "Security"
	logging    topic = "Logging"
	observing  topic = "Metrics and profiling"
	others     topic = "Others"
)

var topics = []topic{member, clustering, reading, limits, connection, security, logging, observing, others}

// setting is one row of the table. A setting is honoured (field is set), ignored or
// refused (with the reason), or it is the old name of another setting.
type setting struct {
	name  string
	topic topic
	usage string
	// field binds the setting to its place in c.
	field func(c *Config) value
	// ignored and refused are reasons, to be read after "because".
	ignored, refused string
	// etcd is etcd's default of an unsupported setting.
	etcd string
	// now is the new name of an old setting. feature is the feature gate if the new
	// name is feature-gates.
	now, feature string
	// bool means that an unsupported setting may be given without a value.
	bool bool
	// secret means that the value is never printed.
	secret bool
}

// row returns a setting that is honoured.
func row(t topic, name, usage string, field func(c *Config) value) setting {
	return setting{name: name, topic: t, usage: usage, field: field}
}

func (s *setting) honoured() bool { return s.field != nil }

// envs returns the setting's environment variables, in order of precedence.
func (s *setting) envs() [2]string {
	name := strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
	return [2]string{"KVNODE_" + name, "ETCD_" + name}
}

var byName = func() map[string]*setting {
	m := make(map[string]*setting, len(table))
	for i := range table {
		m[table[i].name] = &table[i]
	}
	return m
}()

const configFile = "config-file"

// meta holds settings that no configuration file may contain, since they choose the file.
var meta = []setting{{name: configFile, topic: others, usage: "YAML file with settings; flags and environment go before it."}}

// raw holds the text of a flag until Load parses it, so that all errors
// are reported together.
type raw struct{ text, kind string }

func (r *raw) Set(text string) error { r.text = text; return nil }

func (r *raw) String() string { return r.text }

func (r *raw) Type() string { return r.kind }

// AddFlags gives cmd a flag for each setting.
func AddFlags(cmd *cobra.Command) error {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.AddFlag(&pflag.Flag{Name: configFile, Usage: meta[0].usage, Value: &raw{kind: kindFile}})
	if err := cmd.MarkFlagFilename(configFile, "yaml", "yml"); err != nil {
		return err
	}
	defaults, _ := Load(nil, nil)
	for i := range table {
		s := &table[i]
		f := s.flag(&defaults.Config)
		fs.AddFlag(f)
		if err := complete(cmd, s, f); err != nil {
			return err
		}
	}
	return nil
}

// flag returns the setting's flag, with its value in defaults. The help leaves out flags without
// effect.
func (s *setting) flag(defaults *Config) *pflag.Flag {
	f := &pflag.Flag{Name: s.name, Usage: s.usage, Hidden: !s.honoured()}
	kind := "string"
	if s.honoured() {
		v := s.field(defaults)
		kind, f.DefValue = v.Type(), v.String()
	}
	if s.now != "" && s.feature == "" {
		f.NoOptDefVal = byName[s.now].flag(defaults).NoOptDefVal
	}
	f.Value = &raw{text: f.DefValue, kind: kind}
	if s.bool || kind == kindBool {
		f.NoOptDefVal = "true"
	}
	return f
}

// complete registers shell completion for a flag.
func complete(cmd *cobra.Command, s *setting, f *pflag.Flag) error {
	kind := f.Value.Type()
	switch {
	case kind == kindDir:
		return cmd.MarkFlagDirname(s.name)
	case kind == kindFile:
		return cmd.MarkFlagFilename(s.name)
	case strings.Contains(kind, "|"):
		return cmd.RegisterFlagCompletionFunc(s.name, cobra.FixedCompletions(strings.Split(kind, "|"), cobra.ShellCompDirectiveNoFileComp))
	default:
		return cmd.RegisterFlagCompletionFunc(s.name, cobra.NoFileCompletions)
	}
}

// Flags returns the flags of the table that were set.
func Flags(fs *pflag.FlagSet) map[string]string {
	given := make(map[string]string)
	fs.Visit(func(f *pflag.Flag) {
		if _, ok := byName[f.Name]; ok || f.Name == configFile {
			given[f.Name] = f.Value.String()
		}
	})
	return given
}

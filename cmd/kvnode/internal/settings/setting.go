package settings

import (
	"strings"

	"github.com/leaderlease/go/kvnode/server"
)

// Config is all that the settings fill in.
type Config struct {
	Server server.Config
	Log    Log
	// Supervise runs the member as a child of a supervisor (package kvnode/supervisor).
	Supervise bool
	// features are etcd's: see features.go.
	features string
}

// Log says where to log and how.
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

// setting is one row of the table. Either field is set, and the setting is
// honoured, or one of ignored and refused says why it is not, or it is an old
// name of another.
type setting struct {
	name  string
	topic topic
	usage string
	// field binds the setting to its place in c.
	field func(c *Config) value
	// ignored and refused are reasons, to be read after "because".
	ignored, refused string
	// etcd is etcd's default of a setting that is not honoured.
	etcd string
	// now is what an old name is called today, feature the one that has become of
	// it if that is feature-gates.
	now, feature string
	// bool says that such a setting may be given without a value.
	bool bool
	// secret says that its value is not to be shown.
	secret bool
}

// row is a setting that is honoured.
func row(t topic, name, usage string, field func(c *Config) value) setting {
	return setting{name: name, topic: t, usage: usage, field: field}
}

func (s *setting) honoured() bool { return s.field != nil }

// envs returns the setting's environment variables, the stronger one first.
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

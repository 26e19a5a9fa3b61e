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

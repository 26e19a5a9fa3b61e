// Package settings is what kvnode serve can be told, and how: one table of
// settings, each of which is a flag, two environment variables, a key of the
// configuration file, a line of --print-config and of the help.
//
// A value comes from the first of these that has one:
//
//	--name           flag
//	KVNODE_NAME      environment
//	ETCD_NAME        environment, as etcd reads it
//	name:            configuration file (--config-file)
//	                 default
//
// If both environment variables are set and disagree, that is an error: nobody
// can know which was meant.
//
// The names are etcd's, so that what starts etcd starts kvnode. What kvnode
// cannot do it refuses, with the reason, unless leaving it out harms nobody;
// then a warning says so. A setting that is refused may always be given the
// value that etcd has by default: that asks for nothing.
package settings

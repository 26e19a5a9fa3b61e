package settings

import "github.com/leaderlease/go/kvnode"

// ParseMembers understands what --initial-cluster takes: name=url,name=url, where
// a name that comes again has several URLs.
func ParseMembers(text string) ([]kvnode.Member, error) { return parseMembers(text) }

// ParseURLs splits a list of URLs.
func ParseURLs(text string) []string { return split(text) }

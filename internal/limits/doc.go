// Package limits has a test only: how long files and functions may be, in all modules
// of the repository. What a linter can count, it counts: see funlen and cyclop in
// .golangci.yaml.
package limits

#!/bin/sh
# Runs go mod tidy in each module of the workspace as if all were published: a copy of go.mod replaces the
# modules of this repository by their directories. Neither go.mod nor go.sum keeps a trace of that.
set -eu
cd "$(dirname "$0")/.."
export GOWORK=off GOFLAGS=-mod=mod
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
modules=$(GOWORK='' GOFLAGS='' go list -m -f '{{.Path}}={{.Dir}}')
for module in $modules; do
	dir=${module#*=}
	cp "$dir/go.mod" "$tmp/go.mod"
	if [ -f "$dir/go.sum" ]; then cp "$dir/go.sum" "$tmp/go.sum"; else : >"$tmp/go.sum"; fi
	for other in $modules; do
		[ "$other" = "$module" ] || go mod edit "-replace=$other" "$tmp/go.mod"
	done
	(cd "$dir" && go mod tidy -modfile="$tmp/go.mod")
	for other in $modules; do
		go mod edit "-dropreplace=${other%%=*}" "$tmp/go.mod"
	done
	cp "$tmp/go.mod" "$dir/go.mod"
	if [ -s "$tmp/go.sum" ]; then cp "$tmp/go.sum" "$dir/go.sum"; fi
done

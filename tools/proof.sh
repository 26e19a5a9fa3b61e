#!/bin/sh
# Runs the proofs that take hours, one after the other, each by its make target. A step that has
# passed on this tree is not run again, so a run that was stopped goes on where it was.
#
#	tools/proof.sh          all steps
#	tools/proof.sh chaos    one step
set -eu
cd "$(dirname "$0")/.."

out=bench/out/proof
mkdir -p "$out"
if [ -n "$(git status --porcelain)" ]; then
	echo "proof: commit your changes first: a result names the tree that it is of" >&2
	exit 1
fi
tree=$(git rev-parse 'HEAD^{tree}')
only=${1-}
failed=

# step NAME COMMAND... keeps what the command prints in $out/NAME.txt.
step() {
	name=$1
	shift
	[ -z "$only" ] || [ "$only" = "$name" ] || return 0
	file=$out/$name.txt
	if [ "$(tail -n 1 "$file" 2>/dev/null)" = "passed: $tree" ]; then
		echo "$name: has passed on this tree ($file)"
		return 0
	fi
	echo "$name: $* (output in $file)"
	{
		echo "tree: $tree"
		echo "commit: $(git describe --always)"
		echo "toolchain: $(go version)"
		echo "machine: $(uname -srm), $(getconf _NPROCESSORS_ONLN) cpus"
		echo "command: $*"
		echo "began: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
	} >"$file"
	if "$@" >>"$file" 2>&1; then
		echo "passed: $tree" >>"$file"
	else
		failed="$failed $name"
		echo "failed: $tree" >>"$file"
		echo "$name: FAILED, see $file"
	fi
}

step race make race
step sim make sim SEEDS=2000
step raftsim make raftsim SEEDS=2000
step kvnode-seeds make kvnode-seeds
step explore make explore
step mutants make mutants
step chaos make chaos FOR=30m
step rolling make rolling
step floods make floods
step unauthenticated make unauthenticated
step contrib make contrib
step robustness make robustness
step etcd-suites make etcd-suites

if [ -n "$failed" ]; then
	echo "proof: failed:$failed" >&2
	exit 1
fi
echo "proof: all that was run has passed"

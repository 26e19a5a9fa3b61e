#!/usr/bin/env bash
# Compares the public names of the stable packages with those of the library's last
# release, and fails if one is gone, or means something else, and CHANGELOG.md does
# not name it under Unreleased. Run as: make api
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tag=${1:-$(git describe --tags --match 'leaderlease/v*' --abbrev=0 2>/dev/null || true)}
if [[ -z $tag ]]; then
	echo "no release yet: there is nothing to compare the public names with"
	exit 0
fi
apidiff=$(go -C tools tool -n apidiff)
old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
git archive "$tag" go.mod go.sum go.work go.work.sum leaderlease | tar -x -C "$old"

sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/p' CHANGELOG.md >"$old/unreleased"

module=github.com/leaderlease/go/leaderlease
broken=0
for dir in "" clock fence fence/boltfence metrics; do # doc.go names them
	(cd "$old" && "$apidiff" -w "$old/api" "$module${dir:+/$dir}")
	while IFS=: read -r name what; do
		short=${name##*.}
		if ! grep -qwF "${short#- }" "$old/unreleased"; then
			echo "$module${dir:+/$dir}, since $tag, not in CHANGELOG.md:$name:$what"
			broken=1
		fi
	done < <("$apidiff" -incompatible "$old/api" "$module${dir:+/$dir}")
done
exit "$broken"

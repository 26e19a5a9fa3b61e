package kvnode

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// digestPrefix begins what rosters of former versions have in place of an instance, and so the member.json of a member
// that has joined by such a roster.
const digestPrefix = "sha256:"

// isInstance reports whether instance is the one that a registry or a roster knows. An empty known instance means that
// the member has not started yet.
func isInstance(known, instance string) bool {
	if strings.HasPrefix(known, digestPrefix) {
		sum := sha256.Sum256([]byte("kvnode instance\x00" + instance))
		return known == digestPrefix+hex.EncodeToString(sum[:16])
	}
	return known == "" || known == instance
}

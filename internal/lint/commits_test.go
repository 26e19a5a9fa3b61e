package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notImperative matches the first word after the prefix of a subject if it is no verb in the imperative.
var notImperative = regexp.MustCompile(`^(?i:a|an|the|who|whose|what|whatever|which|as|at|in|on|of|for|if|when|where|while|with|without|those|these|this|that|` +
	`each|every|all|no|none|one|two|more|less|not|and|but|its|it|there|nobody|\w+ed|\w+ing|` +
	`(add|allow|answer|build|call|change|check|close|count|derive|draw|drop|fail|fix|follow|get|give|have|hold|hide|identif|keep|let|log|look|make|mark|` +
	`measure|move|name|need|print|put|read|refuse|remove|rename|report|return|run|say|see|send|serve|set|show|split|start|state|stop|take|tell|test|` +
	`tie|use|wait|write)(s|es|ies))$`)

// imperativeEnds are imperatives that end like a participle.
var imperativeEnds = regexp.MustCompile(`^(?i:embed|feed|need|seed|shed|speed|exceed|proceed|bring|ping|spring|string)$`)

func imperative(subject string) bool {
	if before, after, ok := strings.Cut(subject, ": "); ok && !strings.HasPrefix(before, "Revert") {
		subject = after
	}
	first, _, _ := strings.Cut(subject, " ")
	first = strings.TrimRight(first, ",.:;")
	return imperativeEnds.MatchString(first) || !notImperative.MatchString(first)
}

// Subjects of commits are imperatives, since the commit that added this test.
func TestCommitSubjectsAreImperatives(t *testing.T) {
	_, _ = os.Stat(filepath.Join(root, ".git", "logs", "HEAD")) // a cached result ends with the next commit
	const self = "internal/lint/commits_test.go"
	added := git(t, "log", "--diff-filter=A", "--format=%H", "--", self)
	if len(added) == 0 || git(t, "rev-parse", "--is-shallow-repository")[0] == "true" {
		t.Skip("an archive or a shallow clone: the commits since the test are not all here")
	}
	begin := added[len(added)-1]
	var wrong []string
	for _, subject := range git(t, "log", "--no-merges", "--format=%s", begin+"..HEAD") {
		if !imperative(subject) {
			wrong = append(wrong, subject)
		}
	}
	if limit := readSizes(t)[commitSubjects].ceiling; len(wrong) > limit {
		t.Errorf("%d subjects of commits do not begin with a verb in the imperative, such as \"kvnode: limit log lines per peer\"; at most %d allowed:\n%s",
			len(wrong), limit, strings.Join(wrong, "\n"))
	}
}

const commitSubjects = "commit subjects that are no imperatives"

// Control of TestCommitSubjectsAreImperatives.
func TestImperativesAreTold(t *testing.T) {
	for subject, want := range map[string]bool{
		"kvnode: limit log lines per peer":           true,
		"frontdoor, kvnode/server: refuse streams":   true,
		"kvnode: seed the generator":                 true,
		"all: as linters have it":                    false,
		"kvnode: who asks is told":                   false,
		"kvnode: added a test":                       false,
		"kvnode: refusing streams":                   false,
		"leasetest: holds a message":                 false,
		"kvnode: the leader drops what is too large": false,
		"Revert \"kvnode: the leader\"":              true,
	} {
		if got := imperative(subject); got != want {
			t.Errorf("%q is an imperative: %v, want %v", subject, got, want)
		}
	}
}

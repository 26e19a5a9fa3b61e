package words

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// glossary has the table that says which names may have a word (ruleHeading).
const (
	glossary    = root + "/docs/glossary.md"
	ruleHeading = "## Words that names have for one thing only"
)

// A rule is a row of the table: names with a word that begins with stem are those
// that match a pattern, which has the form package.Name, or package/file.go.
type rule struct {
	stem     string
	after    string // it does not count after this word
	exported bool   // it counts in exported names, and in those of files
	patterns []string
}

// parseRule reads a row: `word`, or `word` after anything but `other`; what it means;
// the patterns.
func parseRule(row string) (r rule, ok bool) {
	code := regexp.MustCompile("`([^`]+)`")
	cells := strings.Split(row, "|")
	if len(cells) != 5 {
		return rule{}, false
	}
	words := code.FindAllStringSubmatch(cells[1], -1)
	if len(words) == 0 {
		return rule{}, false // the heading, or the line below
	}
	r.stem = strings.ToLower(words[0][1])
	r.exported = r.stem != words[0][1]
	if len(words) > 1 {
		r.after = words[1][1]
	}
	for _, m := range code.FindAllStringSubmatch(cells[3], -1) {
		r.patterns = append(r.patterns, m[1])
	}
	return r, true
}

// has reports whether the rule is about a name.
func (r *rule) has(name string) bool {
	if r.exported && !ast.IsExported(name) && !strings.HasSuffix(name, ".go") {
		return false
	}
	words := split(name)
	for i, w := range words {
		if strings.HasPrefix(w, r.stem) && (i == 0 || r.after == "" || words[i-1] != r.after) {
			return true
		}
	}
	return false
}

// allows returns the pattern that a name matches.
func (r *rule) allows(name string) (pattern string, ok bool) {
	for _, p := range r.patterns {
		if matched, err := path.Match(p, name); err == nil && matched {
			return p, true
		}
	}
	return "", false
}

// split returns the words of a name, in small letters: TTLLease has ttl and lease.
func split(name string) (words []string) {
	letters := []rune(strings.TrimSuffix(name, ".go"))
	begun := 0
	end := func(i int) {
		if i > begun {
			words = append(words, strings.ToLower(string(letters[begun:i])))
		}
	}
	for i, c := range letters {
		switch {
		case !unicode.IsLetter(c):
			end(i)
			begun = i + 1
		case i > begun && unicode.IsUpper(c) && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])):
			end(i)
			begun = i
		}
	}
	end(len(letters))
	return words
}

// A word of the table stands for one thing. Whoever uses it for another one finds out
// here, as does whoever leaves a name in the table that is gone.
func TestNamesHaveTheirWords(t *testing.T) {
	rules := readRules(t)
	if len(rules) < 8 {
		t.Fatalf("%s has %d rules, want those below %q", glossary, len(rules), ruleHeading)
	}
	used := make(map[string]bool)
	for _, file := range sources(t, ".go") {
		for _, n := range names(t, file) {
			for _, r := range rules {
				if !r.has(n.name) {
					continue
				}
				p, ok := r.allows(n.full())
				used[r.stem+p] = true
				if !ok {
					t.Errorf("%s: %s has the word %q, which means another thing: see %s", n.at, n.full(), r.stem, glossary)
				}
			}
		}
	}
	for _, r := range rules {
		for _, p := range r.patterns {
			if !used[r.stem+p] {
				t.Errorf("%s allows %q to have the word %q, and nothing is called that", glossary, p, r.stem)
			}
		}
	}
}

// TestRulesRefuse is the control of TestNamesHaveTheirWords.
func TestRulesRefuse(t *testing.T) {
	for _, test := range []struct {
		row, name string
		ok        bool
	}{
		{"| `admit` | a | `fence.Admit`, `core.*` |", "etcdapi.admitGrowth", false},
		{"| `admit` | a | `fence.Admit`, `core.*` |", "fence.Admit", true},
		{"| `admit` | a | `fence.Admit`, `core.*` |", "fence.readAdmitted", false},
		{"| `admit` | a | `fence.Admit`, `core.*` |", "etcdapi.permit", true},
		{"| `settle` | a | `raftwal/settle.go` |", "linz/settle.go", false},
		{"| `settle` | a | `raftwal/settle.go` |", "raftwal/settle.go", true},
		{"| `succession` | say transfer | – |", "kvnode.succession", false},
		{"| `Lease`, but after `ttl` | a | – |", "store.Leases", false},
		{"| `Lease`, but after `ttl` | a | – |", "store.CountTTLLeases", true},
		{"| `Lease`, but after `ttl` | a | – |", "store.newLeases", true},
		{"| `Lease`, but after `ttl` | a | – |", "store/lease.go", false},
		{"| `Lease`, but after `ttl` | a | – |", "core.Release", true},
	} {
		r, ok := parseRule(test.row)
		if !ok {
			t.Fatalf("parseRule(%q) finds no rule", test.row)
		}
		n := strings.LastIndexAny(strings.TrimSuffix(test.name, ".go"), "./")
		_, allowed := r.allows(test.name)
		if got := allowed || !r.has(test.name[n+1:]); got != test.ok {
			t.Errorf("%s: %s is allowed: %v, want %v", test.row, test.name, got, test.ok)
		}
	}
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	text, err := os.ReadFile(glossary)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), ruleHeading)
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if r, ok := parseRule(strings.TrimSpace(line)); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// A named thing of a package: a file, or what is declared at its top, with the fields
// and the methods of its types.
type named struct{ pkg, name, at string }

func (n named) full() string {
	if strings.HasSuffix(n.name, ".go") {
		return n.pkg + "/" + n.name
	}
	return n.pkg + "." + n.name
}

// names returns what a file declares, and its own name. Tests may call things as their
// stories do; their files are called like others.
func names(t *testing.T, file string) (all []named) {
	t.Helper()
	pkg, base := filepath.Base(filepath.Dir(file)), filepath.Base(file)
	all = append(all, named{pkg, base, file})
	if strings.HasSuffix(file, "_test.go") {
		return all
	}
	f := parse(t, file)
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			all = append(all, named{pkg, id.Name, f.at(id)})
		}
	}
	for _, decl := range f.ast.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name)
				return false
			case *ast.ValueSpec:
				add(n.Names...)
				return false
			case *ast.TypeSpec:
				add(n.Name)
			case *ast.StructType:
				addFields(n.Fields, add)
			case *ast.InterfaceType:
				addFields(n.Methods, add)
			}
			return true
		})
	}
	return all
}

func addFields(fields *ast.FieldList, add func(...*ast.Ident)) {
	for _, f := range fields.List {
		add(f.Names...)
	}
}

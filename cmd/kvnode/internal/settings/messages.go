package settings

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Spoken replaces the names of Go fields in a text by their flags. The packages of kvnode name
// fields in their errors and know no flags. A field of the node or of the API is also found by its
// last name alone, if that has several words. Package kvnode calls the node's fields Config's, and
// Config.Existing is the field of a member that joins. Quoted text, and parts of longer words such as
// paths, are not changed.
func Spoken(text string) string {
	var b strings.Builder
	done := 0
	for _, at := range nameOrQuoted.FindAllStringIndex(text, -1) {
		if flag, ok := flagOf[text[at[0]:at[1]]]; ok && standsAlone(text, at[0], at[1]) {
			b.WriteString(text[done:at[0]] + "--" + flag)
			done = at[1]
		}
	}
	return b.String() + text[done:]
}

var (
	nameOrQuoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\b[A-Z]\w*(\.[A-Z]\w*)?`)
	// severalWords matches a name that cannot be a word of a sentence.
	severalWords = regexp.MustCompile(`[a-z][A-Z]`)
)

// standsAlone reports whether text[from:to] is a word of a sentence.
func standsAlone(text string, from, to int) bool {
	rest := strings.TrimLeft(text[to:], ".,:;)")
	return (from == 0 || strings.IndexByte(" \n(", text[from-1]) >= 0) && (rest == "" || rest[0] == ' ' || rest[0] == '\n')
}

// flagOf holds the flags by the paths of their fields in server.Config. A setting of both TLS
// configurations, of clients and of peers, is found by the field's name alone.
var flagOf = func() map[string]string {
	m := map[string]string{
		"MinVersion": "tls-min-version", "MaxVersion": "tls-max-version", "CipherSuites": "cipher-suites", "AutoYears": "self-signed-cert-validity",
	}
	var c Config
	paths := make(map[any]string)
	fieldPaths(reflect.ValueOf(&c.Server).Elem(), "", paths)
	for i := range table {
		s := &table[i]
		if !s.honoured() {
			continue
		}
		path, ok := paths[s.field(&c).place()]
		if !ok {
			continue // it is not the server's
		}
		m[path] = s.name
		part, last, _ := strings.Cut(path, ".")
		if part == "Node" {
			m["Config."+last] = s.name
		}
		if (part == "Node" || part == "API") && severalWords.MatchString(last) {
			m[last] = s.name
		}
	}
	m["Config.Existing"] += " existing"
	return m
}()

// fieldPaths records the paths of the fields of v, by pointers to them.
func fieldPaths(v reflect.Value, prefix string, paths map[any]string) {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		if !f.IsExported() {
			continue
		}
		paths[field.Addr().Interface()] = prefix + f.Name
		if field.Kind() == reflect.Struct && prefix == "" {
			fieldPaths(field, f.Name+".", paths)
		}
	}
}

// nearestWord returns the known word that is closest to given, or "". It accepts one edit for
// every four letters, and at least one.
func nearestWord(given string, known []string) string {
	best, least := "", max(1, len(given)/4)+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(strings.ToLower(given), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// Hint returns a question with the nearest known word for the end of a message, or "". form is a
// format with one %s, for that word.
func Hint(given string, known []string, form string) string {
	word := nearestWord(given, known)
	if word == "" {
		return ""
	}
	return "; did you mean " + fmt.Sprintf(form, word) + "?"
}

// NoArgs is cobra.NoArgs with a suggestion of a command.
func NoArgs(cmd *cobra.Command, args []string) error {
	err := cobra.NoArgs(cmd, args)
	if err == nil {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return fmt.Errorf("%w%s", err, Hint(args[0], known, "%s"))
}

// SuggestFlags makes cmd and the commands below it suggest a flag for an unknown one.
func SuggestFlags(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		unknown, ok := errors.AsType[*pflag.NotExistError](err)
		if !ok {
			return err
		}
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		return fmt.Errorf("%w%s", err, Hint(unknown.GetSpecifiedName(), known, "--%s"))
	})
}

// distance returns the number of letters to change, add, remove, or swap with the next
// one, to make a into b.
func distance(a, b string) int {
	var before []int // two rows ago
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			changed := 1
			if a[i-1] == b[j-1] {
				changed = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+changed)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

package settings

import (
	"reflect"
	"regexp"
	"strings"
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
	// severalWords is a name that is no word of a sentence.
	severalWords = regexp.MustCompile(`[a-z][A-Z]`)
)

// standsAlone reports whether text[from:to] is a word of a sentence.
func standsAlone(text string, from, to int) bool {
	rest := strings.TrimLeft(text[to:], ".,:;)")
	return (from == 0 || strings.IndexByte(" \n(", text[from-1]) >= 0) && (rest == "" || rest[0] == ' ' || rest[0] == '\n')
}

// flagOf has the flags by the paths of their fields in server.Config. What both sides of
// TLS have goes by its name there.
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

// fieldPaths notes where the fields of v are, by pointers to them.
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

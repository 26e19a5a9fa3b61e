package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leaderlease/go/kvnode"
)

// value is a pflag.Value bound to a field.
type value interface {
	Set(text string) error
	String() string
	Type() string
	place() any
}

// bound is a value of any type that has a text form.
type bound[T any] struct {
	field  *T
	kind   string
	parse  func(string) (T, error)
	format func(T) string
}

func (b *bound[T]) Set(text string) error {
	v, err := b.parse(text)
	if err == nil {
		*b.field = v
	}
	return err
}

func (b *bound[T]) String() string { return b.format(*b.field) }

// Type implements value. The help shows it as the name of the argument.
func (b *bound[T]) Type() string { return b.kind }

func (b *bound[T]) place() any { return b.field }

func text(field *string) value { return textOf("string", field) }

// path is a text that the shell completes with directories.
func path(field *string) value { return textOf(kindDir, field) }

// filename is a text that the shell completes with files.
func filename(field *string) value { return textOf(kindFile, field) }

func textOf(kind string, field *string) value {
	return &bound[string]{field, kind, func(s string) (string, error) { return s, nil }, func(s string) string { return s }}
}

// Kinds that several settings share.
const (
	kindDir      = "dir"
	kindFile     = "file"
	kindBool     = "bool"
	kindDuration = "duration"
)

func truth(field *bool) value {
	return &bound[bool]{field, kindBool, parseBool, strconv.FormatBool}
}

// not is a boolean with the opposite meaning of the field.
func not(field *bool) value {
	return &bound[bool]{
		field, kindBool,
		func(s string) (bool, error) { b, err := parseBool(s); return !b, err },
		func(b bool) string { return strconv.FormatBool(!b) },
	}
}

func parseBool(s string) (bool, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("%q must be true or false", s)
	}
	return b, nil
}

type integer interface {
	~int | ~int64 | ~uint32 | ~uint64
}

// number accepts numbers from low to high.
func number[T integer](field *T, low, high T) value {
	return &bound[T]{
		field, "int",
		func(s string) (T, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 0 || uint64(n) < uint64(low) || uint64(n) > uint64(high) {
				return 0, fmt.Errorf("%q must be a whole number from %d to %d", s, low, high)
			}
			return T(n), nil
		},
		func(n T) string { return fmt.Sprint(n) },
	}
}

func signed(field *int64) value {
	return &bound[int64]{
		field, "int",
		func(s string) (int64, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%q must be a whole number of 64 bits", s)
			}
			return n, nil
		},
		func(n int64) string { return strconv.FormatInt(n, 10) },
	}
}

// milliseconds is a duration in etcd's form, a number of milliseconds.
func milliseconds(field *time.Duration) value {
	const limit = 24 * time.Hour
	return &bound[time.Duration]{
		field, "ms",
		func(s string) (time.Duration, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 1 || n > limit.Milliseconds() {
				return 0, fmt.Errorf("%q must be a whole number of milliseconds from 1 to %d", s, limit.Milliseconds())
			}
			return time.Duration(n) * time.Millisecond, nil
		},
		func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) },
	}
}

func duration(field *time.Duration) value {
	return &bound[time.Duration]{
		field, kindDuration,
		func(s string) (time.Duration, error) {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, fmt.Errorf("%q must be a duration with its unit, such as 900ms", s)
			}
			return d, nil
		},
		time.Duration.String,
	}
}

// orNever is a duration with 0 for never, which the field represents as a negative
// value.
func orNever(field *time.Duration) value {
	d, _ := duration(field).(*bound[time.Duration])
	parse := d.parse
	d.parse = func(s string) (time.Duration, error) {
		v, err := parse(s)
		if err == nil && v == 0 {
			v = -1
		}
		return v, err
	}
	d.format = func(v time.Duration) string { return max(v, 0).String() }
	return d
}

// choice is a value that is one of some words.
type choice struct {
	bound[string]
	words []string
}

func oneOf(field *string, words ...string) value {
	c := &choice{words: words}
	c.bound = bound[string]{
		field, strings.Join(words, "|"),
		func(s string) (string, error) {
			if !slices.Contains(words, s) {
				return "", fmt.Errorf("%q must be one of %s", s, strings.Join(words, ", "))
			}
			return s, nil
		},
		func(s string) string { return s },
	}
	return c
}

func orNone(field *string, words ...string) value {
	c, _ := oneOf(field, words...).(*choice)
	one := c.parse
	c.parse = func(s string) (string, error) {
		if s == "" {
			return "", nil
		}
		return one(s)
	}
	return c
}

func words[T comparable](field *T, names []string, values []T) value {
	var name string
	for i, v := range values {
		if v == *field {
			name = names[i]
		}
	}
	c, _ := oneOf(&name, names...).(*choice)
	return &enum[T]{choice: c, field: field, values: values}
}

type enum[T comparable] struct {
	*choice
	field  *T
	values []T
}

func (e *enum[T]) Set(text string) error {
	if err := e.choice.Set(text); err != nil {
		return err
	}
	*e.field = e.values[slices.Index(e.words, text)]
	return nil
}

func (e *enum[T]) place() any { return e.field }

func list(field *[]string, kind string) value {
	return &bound[[]string]{
		field, kind,
		func(s string) ([]string, error) { return Split(s), nil },
		func(all []string) string { return strings.Join(all, ",") },
	}
}

// outputs are the log outputs. An empty list means the default.
func outputs(field *[]string) value {
	return &bound[[]string]{
		field, "list",
		func(s string) ([]string, error) {
			all := Split(s)
			if slices.Contains(all, "systemd/journal") {
				return nil, fmt.Errorf("%q is not offered: under systemd, stderr goes to the journal", "systemd/journal")
			}
			return all, nil
		},
		func(all []string) string {
			if len(all) == 0 {
				return "default"
			}
			return strings.Join(all, ",")
		},
	}
}

func urls(field *[]string) value { return list(field, "urls") }

// Split splits at commas. An empty text has no parts.
func Split(s string) (parts []string) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// members accepts the form of [ParseMembers].
func members(field *[]kvnode.Member) value {
	return &bound[[]kvnode.Member]{field, "name=url,...", ParseMembers, formatMembers}
}

// ParseMembers parses the value of --initial-cluster: name=url,name=url. A repeated name
// adds a URL to its member.
func ParseMembers(s string) (all []kvnode.Member, err error) {
	for _, part := range Split(s) {
		name, url, ok := strings.Cut(part, "=")
		if !ok || name == "" || url == "" {
			return nil, fmt.Errorf("%q must be name=url", part)
		}
		i := slices.IndexFunc(all, func(m kvnode.Member) bool { return m.Name == name })
		if i < 0 {
			i, all = len(all), append(all, kvnode.Member{Name: name})
		}
		all[i].PeerURLs = append(all[i].PeerURLs, url)
	}
	return all, nil
}

func formatMembers(all []kvnode.Member) string {
	var parts []string
	for _, m := range all {
		for _, u := range m.PeerURLs {
			parts = append(parts, m.Name+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

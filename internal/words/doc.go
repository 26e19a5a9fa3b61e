// Package words holds the tests that keep one word for each thing, in names and in
// log lines; it exports nothing.
package words

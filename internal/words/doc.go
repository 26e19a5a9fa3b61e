// Package words holds tests of comments and log lines. It has no code of its own.
package words

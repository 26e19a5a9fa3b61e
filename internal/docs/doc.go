// Package docs holds the tests that keep the documents true; it exports nothing.
package docs

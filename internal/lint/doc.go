// Package lint holds the tests that check the repository as a whole: which package may import which,
// the words of comments, names, messages and Markdown, links, lengths, commit subjects, and the sizes
// that may only fall. It exports nothing and has no code outside its tests.
//
// Each check has a negative control: a text that breaks the rule, which the check must find. A rule
// that existing text breaks has a ceiling in testdata/sizes.txt. The check fails when a number rises
// above its ceiling; it logs a number that fell, so that the next commit can lower the ceiling.
package lint

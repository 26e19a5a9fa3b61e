// Package bench says what is measured: which arms, under which conditions, how
// often and in which order. Arms of a comparison differ in one thing; all rounds
// of all arms are interleaved in one run, and the order turns from round to
// round, so that what else the machine does meets every arm alike.
package bench

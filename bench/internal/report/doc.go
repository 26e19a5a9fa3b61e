// Package report holds what a benchmark run has measured, and writes it as tables
// for a terminal and as text for benchstat.
//
// Layers are never mixed up: a comparison has arms of one layer, one group of
// conditions and one operation, which differ in one thing.
package report

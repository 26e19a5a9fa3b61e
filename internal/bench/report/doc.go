// Package report holds what a benchmark run has measured and writes it down: as
// tables for a terminal, as text for benchstat, and as JSON.
//
// Layers are never mixed up: a comparison has arms of one layer, one group of
// conditions and one operation, which differ in one thing.
package report

// Package size measures what a server costs that holds many keys, versions or
// watches: memory of its members by kind, processor time, and how long a client
// that asks at a fixed rate has to wait meanwhile.
package size

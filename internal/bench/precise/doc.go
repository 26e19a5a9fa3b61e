// Package precise sleeps to within some tens of microseconds.
//
// The Go runtime's timers are late by up to a millisecond in a process that is
// otherwise idle: on Linux it then waits in epoll_wait, whose timeouts are whole
// milliseconds. A benchmark that injects a round trip of 0.2 ms, or sends a
// request each millisecond, would measure that instead.
package precise

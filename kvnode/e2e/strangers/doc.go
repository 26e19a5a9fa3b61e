// Package strangers is a crowd at the doors of a cluster: connections of nobody who
// belongs there. Some say nothing, some begin handshakes that lead nowhere, some
// have a certificate and lie in their hello.
package strangers

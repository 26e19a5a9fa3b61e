// Package listener is where clients of a server come in: the listeners at its URLs,
// the handshakes, who speaks gRPC and who HTTP, and who may.
//
// # What it promises
//
//   - A connection that says nothing costs a bounded place in the hall, and for
//     ArrivalTime at most; many of them keep no member and no honest client out.
//   - What speaks plain text on a URL with TLS, or came by no listener of the
//     entrance, gets no further.
//   - Over plain HTTP only hosts that the member knows itself by are answered.
//
// The files in the order in which a connection meets them: listen, socket, merge;
// hall, arrival; entrance, handover; counted, cutoff; hosts.
package listener

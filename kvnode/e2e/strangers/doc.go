// Package strangers opens many unauthenticated connections to a cluster. Some send
// nothing, some begin handshakes and do not finish them, and some have a valid
// certificate and send a false hello.
package strangers

// Package redis serves the Redis protocol in front of an etcd v3 cluster, for code that keeps locks and
// small values in Redis. Command kvnode redis runs it, and so does a member with server.Config.ListenRedisURLs.
// It uses only clientv3's KV and Lease interfaces, so the cluster may be kvnode or etcd.
//
// # What it promises
//
//   - A command with keys is one etcd transaction, or one read at one revision. Reads are linearizable.
//   - A write is acknowledged after the cluster has committed it. If the outcome of a write is unknown, the
//     answer is an error that begins with UNKNOWN, and the gateway does not repeat the write.
//   - A key with an expiry has a TTL lease of its own, granted after the command has arrived and before the key
//     is written. The lease lasts at least for the expiry, rounded up to whole seconds.
//   - A gateway revokes the TTL leases that its commands replace. A lease that it cannot revoke ends at its time.
//
// # What is different from Redis
//
//   - The package is experimental.
//   - WATCH of a key that does not exist does not notice that it was created and deleted meanwhile.
//   - A fencing token is unique to a holder only if all take the lock by KV.LOCK, SET with NX, or a known script.
//   - A key has at most 16 KiB. A transaction has at most 128 keys and 1.5 MiB, the defaults of etcd.
package redis

#!/bin/sh
# Runs Redis' own tests at a gateway, and prints each test with its result: redis-suite.sh DIRECTORY PORT
# DIRECTORY is the source of Redis 7.0 (apt-get source redis), which it changes: each test has a new connection, and
# FLUSHALL and FLUSHDB become SCAN and DEL. redis-suite.txt is the output of a run. It needs tclsh.
set -eu
cd "$1"
helper=tests/test_helper.tcl
if ! grep -q 'string match -nocase flush' $helper; then
	sed -i '/^proc r {args} {$/a\    if {[string match -nocase flush?* [lindex $args 0]]} {foreach k [lindex [[srv 0 client] scan 0] 1] {[srv 0 client] del $k}; return OK}' $helper
	sed -i 's/^    if {\[catch {set retval \[uplevel 1 \$code\]} error\]} {$/    catch {reconnect}\n&/' tests/support/test.tcl
	sed -i '/^    r function flush$/d' tests/support/server.tcl
fi
for file in unit/type/string unit/type/incr unit/expire unit/multi unit/keyspace unit/scan unit/protocol unit/quit; do
	echo "# $file"
	timeout 200 ./runtest --host 127.0.0.1 --port "$2" --singledb --durable --single "$file" --skiptest '/Very big payload.*' 2>&1 |
		sed 's/\x1b\[[0-9;]*m//g; /WARNING The following tests failed/,$d' |
		awk '/^\[ok\]: / { sub(/ \([0-9]+ ms\)$/, ""); print "ok    " substr($0, 7) }
			/^\[err\]: / { sub(/ in tests\/.*/, ""); name = substr($0, 8); want = 1; next }
			want && /ERR|Expected|I\/O/ { print "fails " name ": " substr($0, 1, 150); want = 0 }'
done

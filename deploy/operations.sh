# Functions for the procedures in docs/operations. Source this file in sh or bash, after you have set the
# variables of docs/operations/install.md. The functions run on the operator's machine. They reach the
# machines of the members by ssh and scp, as root.

PATH="$PATH:$BIN"
umask 022 # members run as another user, and read what is made here
mkdir -p "$CONF" "$BACKUP"
touch "$CONF/common.yaml" # settings of all members

# client_url NAME and peer_url NAME print the URLs of a member: $M1 and $M1_PEER for m1.
client_url() { eval "echo \"\$$(echo "$1" | tr a-z A-Z)\""; }
peer_url() { eval "echo \"\$$(echo "$1" | tr a-z A-Z)_PEER\""; }

# machine NAME prints the host in the URL of a member.
machine() { client_url "$1" | sed -e 's,^[a-z]*://,,' -e 's,:[0-9]*$,,'; }

# on NAME COMMAND... runs a command on the machine of a member.
on() {
  target=root@$(machine "$1")
  shift
  ssh -n "$target" "umask 022; PATH=\"\$PATH:$BIN\"; $*"
}

# members NAME... sets MEMBERS, ALL and INITIAL_CLUSTER to the members that the cluster has now.
members() {
  MEMBERS=$* ALL='' INITIAL_CLUSTER=''
  for name; do
    ALL=$ALL${ALL:+,}$(client_url "$name")
    INITIAL_CLUSTER=$INITIAL_CLUSTER${INITIAL_CLUSTER:+,}$name=$(peer_url "$name")
  done
}

# each COMMAND... runs a command with the name of each member as its last word, until one fails.
each() { for member in $MEMBERS; do "$@" "$member" || return; done; }

# absent PATH [NAME] fails if a path exists on this machine, or on that of a member.
absent() {
  ${2:+on "$2"} test ! -e "$1" && return
  test $? != 1 || # ssh has failed, and has said so
    echo "$1 exists${2:+ on the machine of $2}: rename it, or remove it if nothing needs it, then repeat this command" >&2
  return 1
}

# copy_from NAME PATH TO copies a directory from the machine of a member, and copy_to FROM NAME PATH to it.
# They fail if the target exists: scp would copy into it, and the data in use would be the old one.
copy_from() { absent "$3" && scp -rq "root@$(machine "$1"):$2" "$3"; }
copy_to() { absent "$3" "$2" && scp -rq "$1" "root@$(machine "$2"):$3"; }

# reason prints the line of the first failed check or unhealthy member, otherwise the last line.
reason() { awk '!found { last = $0 } /^\[-\]|is unhealthy/ { found = 1 } END { print last }'; }

# wait_until WHAT COMMAND... runs a command once a second until it succeeds, for at most $WAIT seconds (300).
# It says what it waits for, and why, after the first attempt, and then about every ten seconds.
wait_until() {
  what=$1 began=$(date +%s) told=0
  shift
  until out=$("$@" 2>&1); do
    waited=$(($(date +%s) - began))
    if test "$waited" -ge "${WAIT:-300}"; then
      printf '%s\n' "$out" "gave up after $waited s: $what" >&2
      return 1
    fi
    if test "$waited" -ge "$told"; then
      echo "waiting: $what ($(printf '%s\n' "$out" | reason))" >&2
      told=$((waited + 10))
    fi
    sleep 1
  done
  echo "$what"
}

# prepare NAME installs kvnode, its user, its directories and its unit on the machine of a member.
prepare() {
  copy_program "$1" &&
    on "$1" "id kvnode > /dev/null 2>&1 || useradd --system --user-group kvnode" &&
    on "$1" "mkdir -p $CONF && mkdir -p -m 700 $DATA && chown kvnode: $DATA" &&
    sed -e "s,/usr/local/bin,$BIN,; s,/etc/kvnode/kvnode.yaml,$CONF/%i.yaml,g" \
      -e "s,^StateDirectory=kvnode,ReadWritePaths=$DATA," \
      "$SOURCE/deploy/systemd/kvnode.service" > "$CONF/kvnode@.service" &&
    scp -q "$CONF/kvnode@.service" "root@$(machine "$1"):$UNITS/kvnode@.service" &&
    on "$1" systemctl daemon-reload
}

# copy_program NAME copies kvnode to the machine of a member.
copy_program() {
  scp -q "$BIN/kvnode" "root@$(machine "$1"):$BIN/kvnode.new" &&
    on "$1" "chmod 755 $BIN/kvnode.new && mv $BIN/kvnode.new $BIN/kvnode"
}

# use_client_certificate DIRECTORY makes etcdctl, kvnode and fetch use the client certificate in the
# directory, or none if the directory has none.
use_client_certificate() {
  unset ETCDCTL_CACERT ETCDCTL_CERT ETCDCTL_KEY
  if test -e "$1/client.crt"; then
    export ETCDCTL_CACERT="$1/ca.crt" ETCDCTL_CERT="$1/client.crt" ETCDCTL_KEY="$1/client.key"
  else
    echo "no client certificate is used, since there is no $1/client.crt" >&2
  fi
}
test ! -e "$TLS/client.crt" || use_client_certificate "$TLS"

# make_authority makes an authority in $AUTHORITY, unless there is one.
make_authority() {
  mkdir -p -m 700 "$AUTHORITY" || return
  if test -e "$AUTHORITY/ca.key"; then
    echo "$AUTHORITY has an authority, which is kept"
    return
  fi
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=kvnode" \
    -keyout "$AUTHORITY/ca.new" -out "$AUTHORITY/ca.crt" && mv "$AUTHORITY/ca.new" "$AUTHORITY/ca.key"
}

# issue NAME EXTENSION EXTENSION makes a key and a certificate for a year. $AUTHORITY has the authority.
issue() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=$1" \
    -CA "$AUTHORITY/ca.crt" -CAkey "$AUTHORITY/ca.key" \
    -keyout "$AUTHORITY/$1.key" -out "$AUTHORITY/$1.crt" \
    -addext basicConstraints=critical,CA:FALSE -addext "$2" -addext "$3"
}

# certify NAME makes a certificate for a member and copies it to the member's machine, if the members trust
# the authority.
certify() {
  case $(machine "$1") in
    *[!0-9.]*) subject=DNS:$(machine "$1") ;;
    *) subject=IP:$(machine "$1") ;;
  esac
  issue "$1" "subjectAltName=$subject" extendedKeyUsage=serverAuth,clientAuth || return
  if ! openssl verify -CAfile "$TLS/ca.crt" "$AUTHORITY/$1.crt"; then
    echo "the certificate of $1 is not installed, since $TLS/ca.crt lacks the authority in $AUTHORITY:" \
      "set AUTHORITY to the one that members trust, or trust the new one first" >&2
    return 1
  fi
  on "$1" mkdir -p "$TLS" &&
    scp -q "$AUTHORITY/$1.key" "root@$(machine "$1"):$TLS/member.key" &&
    scp -q "$AUTHORITY/$1.crt" "root@$(machine "$1"):$TLS/member.crt" &&
    on "$1" "chmod 644 $TLS/member.crt && chown kvnode: $TLS/member.key"
}

# trust NAME copies the authorities in $TLS/ca.crt to the machine of a member.
trust() {
  on "$1" mkdir -p "$TLS" &&
    scp -q "$TLS/ca.crt" "root@$(machine "$1"):$TLS/ca.new" &&
    on "$1" "chmod 644 $TLS/ca.new && mv $TLS/ca.new $TLS/ca.crt"
}

# set_common NAME VALUE sets a setting of all members, for the next write_config.
set_common() {
  sed -i "/^$1:/d" "$CONF/common.yaml"
  echo "$1: $2" >> "$CONF/common.yaml"
}

# write_config new|existing NAME writes the configuration of a member to its machine: "new" for the
# first start of a cluster, "existing" later.
write_config() {
  cat - "$CONF/common.yaml" > "$CONF/$2.new" <<END
name: $2
data-dir: $DATA/$2
listen-client-urls: $(client_url "$2")
advertise-client-urls: $(client_url "$2")
listen-peer-urls: $(peer_url "$2")
initial-advertise-peer-urls: $(peer_url "$2")
initial-cluster-state: $1
initial-cluster: $INITIAL_CLUSTER
initial-cluster-token: $TOKEN
END
  scp -q "$CONF/$2.new" "root@$(machine "$2"):$CONF/$2.yaml" && on "$2" chmod 644 "$CONF/$2.yaml"
}

# validate NAME checks the configuration of a member that is not running, as the unit's user on its machine.
validate() {
  echo "$1:"
  on "$1" runuser -u kvnode -- kvnode serve --config-file "$CONF/$1.yaml" --validate
}

# start NAME starts a member now and with its machine. It does not wait, since a member serves only
# when a majority has started. stop NAME undoes it.
start() { on "$1" systemctl enable --now --no-block "kvnode@$1"; }
stop() { on "$1" systemctl disable --now "kvnode@$1"; }

# ready succeeds if all members are ready.
ready() { for url in $(echo "$ALL" | tr , ' '); do fetch "$url/readyz" || return; done; }

# restart NAME restarts a member once all members are ready, and waits until it is ready again.
restart() {
  wait_until "$ALL are ready" ready &&
    on "$1" systemctl stop "kvnode@$1" &&
    on "$1" systemctl start --no-block "kvnode@$1" &&
    wait_until "$1 is ready" fetch "$(client_url "$1")/readyz"
}

# defrag NAME defragments the store of a member, and waits until all members serve.
defrag() { etcdctl --endpoints="$(client_url "$1")" defrag && healthy "$ALL"; }

# no_old NAME fails if a restore has left the former data directory of a member.
no_old() { absent "$DATA/$1.old" "$1"; }

# set_aside NAME renames the data directory of a member that is stopped, unless that is done, or there is none.
set_aside() {
  on "$1" test ! -e "$DATA/$1" && return
  no_old "$1" && on "$1" mv -T "$DATA/$1" "$DATA/$1.old"
}

# import_all PATH FLAG... makes the data directories of a new cluster from a snapshot or a data
# directory on this machine, with flags of kvnode snapshot restore.
import_all() {
  from=$1
  shift
  for name in $MEMBERS; do
    on "$name" "rm -rf $DATA/import && mkdir $DATA/import" &&
      scp -rq "$from" "root@$(machine "$name"):$DATA/import/data" &&
      on "$name" kvnode snapshot restore "$DATA/import/data" --name "$name" --data-dir "$DATA/$name" \
        --initial-advertise-peer-urls "$(peer_url "$name")" --initial-cluster "$INITIAL_CLUSTER" \
        --initial-cluster-token "$TOKEN" "$@" &&
      on "$name" "rm -r $DATA/import && chown -R kvnode: $DATA/$name" || return
  done
}

# restore_all PATH FLAG... is import_all for clients that have seen later revisions. It raises term and
# revision to the time in microseconds, so they are higher than after any restore before.
restore_all() {
  state=$(kvnode snapshot status "$1" -w json) &&
    import_all "$@" --bump-term "$(up_to_now raftTerm)" --bump-revision "$(up_to_now revision)" --mark-compacted
}

# up_to_now FIELD prints the time in microseconds less that number in $state, or a billion if that is not
# positive.
up_to_now() {
  echo "$state" | awk -F"\"$1\":" -v now="$(date +%s)" '{
    up = now * 1000000 - $2
    printf "%.0f\n", (up > 0 ? up : 1000000000)
  }'
}

# healthy CLIENT_URL,... waits until these members serve linearizable reads.
healthy() { wait_until "$1 can read" etcdctl --endpoints="$1" endpoint health; }

# fetch CLIENT_URL/PATH prints a page of a member.
fetch() {
  curl --fail-with-body -sS --max-time 30 \
    ${ETCDCTL_CACERT:+--cacert "$ETCDCTL_CACERT" --cert "$ETCDCTL_CERT" --key "$ETCDCTL_KEY"} "$1"
}

# id_of NAME CLIENT_URL,... prints the ID of a member. One that has never started has no name, but its peer
# URL.
id_of() {
  etcdctl --endpoints="$2" member list |
    awk -F', ' -v name="$1" -v peer="$(peer_url "$1")" '$3 == name || $3 == "" && $4 == peer { print $1 }'
}

# revision CLIENT_URL prints the newest revision. The member has applied it then.
revision() { etcdctl --endpoints="$1" get none -w fields | awk '/"Revision"/ { print $3 }'; }

# compact CLIENT_URL,... deletes the versions of keys before the newest revision. It succeeds if an earlier
# compaction has deleted them.
compact() {
  rev=$(revision "${1%%,*}") || return
  if ! out=$(etcdctl --endpoints="$1" compaction --physical "$rev" 2>&1); then
    case $out in
      *"required revision has been compacted"*) ;;
      *)
        echo "$out" >&2
        return 1
        ;;
    esac
  fi
  echo "$1 is compacted at revision $rev"
}

# unchanged CLIENT_URL fails if the newest revision changes within ten seconds.
unchanged() {
  rev=$(revision "$1") && test -n "$rev" && sleep 10 || return
  later=$(revision "$1") || return
  if test "$rev" != "$later"; then
    echo "$1: the revision went from $rev to $later: some client writes" >&2
    return 1
  fi
  echo "$1 has revision $rev, which does not change"
}

# applied CLIENT_URL,... waits until these members have applied all writes and compactions.
applied() {
  for url in $(echo "$1" | tr , ' '); do etcdctl --endpoints="$url" get none || return; done
}

# same_data CLIENT_URL,... fails unless these members have the same data. Repeat it if it fails
# while a compaction runs.
same_data() {
  rev=$(revision "${1%%,*}") && applied "$1" || return
  hashes=$(etcdctl --endpoints="$1" endpoint hashkv --rev="$rev") || return
  echo "$hashes"
  test "$(echo "$hashes" | awk -F', ' '{ print $2 }' | sort -u | wc -l)" = 1
}

#!/usr/bin/env bash
# Tests servers that move to other machines: while two workers train, two servers with DNS names or names in
# /etc/hosts move one after the other. Each machine is a network namespace. The workers must continue by
# themselves, and the job must finish normally.
#
#   deploy/netns_names_test.sh [hosts|dns]...         default: both
#
# Needs root. Changes /etc/hosts and /etc/resolv.conf only in mount namespaces. The machine's files and
# network stay unchanged.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh
source "$TORCHPS_ROOT/deploy/netns_lib.sh"

[ "$(id -u)" = 0 ] || die "network namespaces need root; run this as root."
[ $# -gt 0 ] || set -- hosts dns
for way in "$@"; do
  [[ "$way" =~ ^(hosts|dns)$ ]] || die "unknown way '$way': expected hosts or dns."
done
"$TORCHPS_ROOT/deploy/setup.sh" build netns
patience_s=120

build_programs
begin_network server0 server1 spare0 spare1 worker0 worker1

cat >"$work/job.textproto" <<'JOB'
name: "names"
workers: 2
model { name: "linear" }
data { source: "digits" train_samples: 1000 test_samples: 100 }
training { epochs: 20 batch_size: 20 }
optimizer { sgd {} learning_rate: 0.05 }
durability { checkpoint_seconds: 1 }
JOB

# Starts dnsmasq in the hub's namespace, without an upstream server. It answers from $work/zone with TTL 0.
start_name_server() {
  ip netns exec "$hub" dnsmasq --conf-file=/dev/null -u root --pid-file="$work/dnsmasq.pid" \
    --listen-address=198.18.0.254 --bind-interfaces --no-resolv --domain-needed --no-hosts --addn-hosts="$work/zone"
}

# write_names NAME=NODE...: sets the addresses of the names.
write_names() {
  local pair
  printf '127.0.0.1 localhost\n' >"$work/names.new"
  for pair in "$@"; do
    printf '%s %s\n' "${address[${pair#*=}]}" "${pair%=*}" >>"$work/names.new"
  done
  # Written in place, because the file is mounted.
  cat "$work/names.new" >"$work/names"
  reload_zone
}

# Makes the name server read the zone again.
reload_zone() { kill -HUP "$(cat "$work/dnsmasq.pid")"; }

# Writes the hosts file and the name server's zone; one of them contains the names. The name server always
# runs, because a resolver without one waits 6 s before it accepts that a name in the hosts file resolves to
# no other address.
write_resolver() {
  printf '127.0.0.1 localhost\n' >"$work/localhost"
  printf 'nameserver 198.18.0.254\noptions timeout:1\n' >"$work/resolv.conf"
  if [ "$1" = dns ]; then
    ln -f "$work/localhost" "$work/hosts"
    ln -f "$work/names" "$work/zone"
  else
    ln -f "$work/names" "$work/hosts"
    ln -f "$work/localhost" "$work/zone"
  fi
  reload_zone
}

# with_names NODE COMMAND...: as `on`, with these files mounted.
with_names() {
  local node="$1"
  shift
  # shellcheck disable=SC2016
  on "$node" unshare --mount sh -c 'mount --bind "$1/hosts" /etc/hosts
    mount --bind "$1/resolv.conf" /etc/resolv.conf
    shift
    exec "$@"' sh "$work" "$@"
}

# start_server NODE INDEX NAME
start_server() {
  with_names "$1" "$binaries/torchps/ps_server" --listen=0.0.0.0:7000 --certs="$certs" \
    --advertise="$3:7000" --dir="$work/disk-$2" &
  process[server$2]=$!
}

progress_lines() { grep -c '^torchps_worker progress' "$work/$1.log" || true; }

# Waits until both workers have reported new progress.
await_progress() {
  local node deadline=$((SECONDS + patience_s))
  declare -A before
  for node in worker0 worker1; do before[$node]="$(progress_lines "$node")"; done
  for node in worker0 worker1; do
    until [ "$(progress_lines "$node")" -gt "${before[$node]}" ]; do
      [ "$SECONDS" -lt "$deadline" ] || {
        tail -n 15 "$work"/*.log
        die "$node makes no progress; the logs are above."
      }
      sleep 0.1
    done
  done
}

# move INDEX NAME TO NAMES...: kills the server and restarts it on node TO, with the new NAMES in effect.
move() {
  local index="$1" name="$2" to="$3" began
  shift 3
  kill -KILL "${process[server$index]}"
  wait "${process[server$index]}" 2>/dev/null || true
  write_names "$@"
  start_server "$to" "$index" "$name"
  began="$(date +%s.%N)"
  await_progress
  say "$way: $name is at ${address[$to]} now, and both workers continue" \
    "$(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $began }") s after its start"
}

certs="$work/certs"
"$binaries/torchps/psctl" certs --dir="$certs" --job=names --hosts=alpha,beta >"$work/certs.log"
start_name_server

declare -A process
for way in "$@"; do
  rm -rf "$work"/disk-* "$work"/*.log
  write_names alpha=server0 beta=server1
  write_resolver "$way"
  start_server server0 0 alpha
  start_server server1 1 beta
  for node in worker0 worker1; do
    with_names "$node" "$binaries/torchps/ps_worker" --servers=alpha:7000,beta:7000 \
      --job="$work/job.textproto" --certs="$certs" --pace=100 --progress_seconds=0.5 &
    process[$node]=$!
  done
  until [ -s "$work/worker0.log" ] && [ -s "$work/worker1.log" ]; do sleep 0.1; done
  await_progress
  move 1 beta spare1 alpha=server0 beta=spare1
  move 0 alpha spare0 alpha=spare0 beta=spare1
  (with_names spare0 timeout 600 "$binaries/torchps/psctl" report --wait --certs="$certs" \
    --servers=alpha:7000,beta:7000 --report="$work/report.json") || {
    tail -n 15 "$work"/*.log
    die "the job failed; the logs are above."
  }
  end_well worker0 worker1
  grep -q 'consistency check passed' "$work/spare0.log" || die "$way: $(tail -n 20 "$work/spare0.log")"
  stop_servers
  say "$way: both servers have moved, and the consistency check passed"
done

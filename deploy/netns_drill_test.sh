#!/usr/bin/env bash
# Tests network cuts while a job trains: two servers and two workers, each in a network namespace. One worker is
# cut off from one server, a server from all nodes, and one half of the job from the other, for longer than a
# lease. One server uses a slow disk, and unauthenticated clients hold half-open TLS handshakes and silent pushes
# at both servers. Workers that are not cut off must make progress within a lease plus 2 s, and the job must use
# every sample once.
#
#   deploy/netns_drill_test.sh
#
# Needs root. Uses separate namespaces only, like netns_test.sh. With TORCHPS_BINARIES=DIR, uses the programs in
# DIR and does not build.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh
source "$TORCHPS_ROOT/deploy/netns_lib.sh"
# shellcheck source-path=SCRIPTDIR source=drill_lib.sh
source "$TORCHPS_ROOT/deploy/drill_lib.sh"

[ "$(id -u)" = 0 ] || die "network namespaces need root; run this as root."
"$TORCHPS_ROOT/deploy/setup.sh" build netns
lease_s=1
cut_s=6
patience_s=120

build_programs
begin_network server0 server1 worker0 worker1 stranger

cat >"$work/job.textproto" <<JOB
name: "parted"
workers: 2
model { name: "linear" }
data { source: "digits" train_samples: 1000 test_samples: 100 }
training { epochs: 60 batch_size: 20 }
optimizer { sgd {} learning_rate: 0.05 }
membership { lease_seconds: $lease_s }
durability { level: LOG checkpoint_seconds: 2 }
JOB
servers="${address[server0]}:7000,${address[server1]}:7000"
certs="$work/certs"
"$binaries/torchps/psctl" certs --dir="$certs" --job=parted \
  --hosts="${address[server0]},${address[server1]}" >"$work/certs.log"

# Restarts a worker that lost its slot or server, like psctl run or systemd.
run_worker() {
  local code=0
  while true; do
    code=0
    (on "worker$1" "$binaries/torchps/ps_worker" --servers="$servers" --job="$work/job.textproto" \
      --certs="$certs" --slot="$1" --pace=50 --progress_seconds=0.2) || code=$?
    [ "$code" != 7 ] && [ "$code" != 3 ] && return "$code"
    printf 'started again after exit code %s\n' "$code" >>"$work/worker$1.log"
  done
}

declare -A process
for index in 0 1; do
  slow=()
  [ "$index" = 0 ] || slow=(--slow_disk=20:5ms)
  on "server$index" "$binaries/torchps/ps_server" --listen="${address[server$index]}:7000" \
    --certs="$certs" --dir="$work/disk-$index" "${slow[@]}" &
  process[server$index]=$!
done
for index in 0 1; do
  run_worker "$index" &
  process[worker$index]=$!
done
await_progress "$patience_s" worker0 worker1
strangers_come "$servers" "$certs/worker" on stranger

most=$((lease_s + 2))
judge "half-open handshakes, silent pushes, a slow disk" 5 "$most" worker0 worker1
part worker1 server1
judge "worker 1 is cut off from server 1; worker 0" "$cut_s" "$most" worker0
join worker1 server1
judge "network restored; both" 10 "$((most + 2))" worker0 worker1
part worker1 server0
judge "worker 1 is cut off from server 0; worker 0" "$cut_s" "$most" worker0
join worker1 server0
judge "network restored; both" 10 "$((most + 2))" worker0 worker1
# State 0 (disabled) drops all traffic.
bridge -netns "$hub" link set dev server1 state 0
sleep "$cut_s"
bridge -netns "$hub" link set dev server1 state 3
judge "server 1 was cut off from all; both, afterwards" 10 "$((most + 2))" worker0 worker1
part worker0 server1
part worker1 server0
part server0 server1
sleep "$cut_s"
join worker0 server1
join worker1 server0
join server0 server1
judge "the halves were cut apart; both, afterwards" 10 "$((most + 2))" worker0 worker1
strangers_go "$patience_s"

(on server0 timeout 600 "$binaries/torchps/psctl" report --wait --certs="$certs" --servers="$servers" \
  --report="$work/report.json") || {
  tail -n 15 "$work"/*.log
  die "the job failed; the logs are above."
}
end_well worker0 worker1
grep -q 'consistency check passed' "$work/server0.log" || die "$(tail -n 20 "$work/server0.log")"
stop_servers
say "the network was cut in four ways, and the consistency check passed"

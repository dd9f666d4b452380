#!/usr/bin/env bash
# Runs a job over a network of namespaces: two servers and two workers, each in a network namespace
# with a separate address, connected by a bridge.
#
#   deploy/netns_test.sh [options of ps_worker]         e.g. --set=training.epochs=1
#
# Needs root. Uses five namespaces, which are always removed; the machine's network stays unchanged.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=netns_lib.sh
source "$TORCHPS_ROOT/deploy/netns_lib.sh"

[ "$(id -u)" = 0 ] || die "network namespaces need root; run this as root."
"$TORCHPS_ROOT/deploy/setup.sh" build netns
limit_s=900
job="$TORCHPS_ROOT/deploy/jobs/convnet_digits.textproto"

build_programs
begin_network server0 server1 worker0 worker1

servers="${address[server0]}:7000,${address[server1]}:7000"
certs="$work/certs"
"$binaries/torchps/psctl" certs --dir="$certs" --job=netns \
  --hosts="${address[server0]},${address[server1]}" >"$work/certs.log"
say "two servers and two workers, one network namespace each, TLS (servers: $servers)"
declare -A process
for node in server0 server1; do
  on "$node" "$binaries/torchps/ps_server" --listen="${address[$node]}:7000" --certs="$certs" &
  process[$node]=$!
done
on server0 timeout "$limit_s" "$binaries/torchps/psctl" report --servers="$servers" --wait \
  --certs="$certs" --report="$work/report.json" &
process[report]=$!
for node in worker0 worker1; do
  on "$node" "$binaries/torchps/ps_worker" --servers="$servers" --job="$job" \
    --certs="$certs" --set=workers=2 "$@" &
  process[$node]=$!
done

end_well worker0 worker1 report
"$TORCHPS_ROOT/deploy/check_report.py" --servers=2 --workers=2 "$work/report.json"
stop_servers
say "the job finished over four addresses"

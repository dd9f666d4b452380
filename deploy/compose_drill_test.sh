#!/usr/bin/env bash
# Drills the cluster of docker-compose.yml: two servers and three workers in containers train while their network
# is cut. One worker is cut off from one server, a server from all nodes, and one half of the job from the other. A
# worker is paused. A worker and both servers are killed and restarted by the restart policy. During all of this,
# server 0 uses a slow disk, server 1 reads slowly when it recovers, and unauthenticated clients hold half-open TLS
# handshakes and silent pushes at both. Workers that are not hit must make progress within a lease plus 2 s. The
# job must reach its accuracy, use every sample once, and lose no acknowledged push.
#
#   deploy/compose_drill_test.sh [--built] [--start-engine]
#
#   --built         use the existing images torchps-server and torchps-worker
#   --start-engine  start a Docker engine if none answers   (it keeps running)
#
# Needs root and a local engine, because it enters the containers' network namespaces. Like compose_test.sh, builds
# on $TORCHPS_BASE_IMAGE or a new Debian 12 image.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=compose_lib.sh
source "$TORCHPS_ROOT/deploy/compose_lib.sh"
# shellcheck source-path=SCRIPTDIR source=drill_lib.sh
source "$TORCHPS_ROOT/deploy/drill_lib.sh"

[ "$(id -u)" = 0 ] || die "the containers' network namespaces need root; run this as root."
"$TORCHPS_ROOT/deploy/setup.sh" netns
lease_s=2
cut_s=6
patience_s=120
most=$((lease_s + 2))  # for workers that are not hit
# For all workers, after a recovery: a slot's lease must expire, or a container restart.
back=$((most + 6))
restored=$((back + 6))  # the same, if a server reads slowly during recovery

export TORCHPS_WORKERS=3
begin_compose docker-compose.yml docker-compose.drill.yml -- "$@"
export TORCHPS_JOBS_DIR="$work/jobs" TORCHPS_JOB=drill
mkdir "$TORCHPS_JOBS_DIR"
cat >"$TORCHPS_JOBS_DIR/drill.textproto" <<JOB
name: "drill"
workers: $TORCHPS_WORKERS
model { name: "mlp" hidden: 16 }
data { source: "digits" train_samples: 2000 test_samples: 500 }
training { epochs: 60 batch_size: 30 }
optimizer { sgd {} learning_rate: 0.05 }
membership { lease_seconds: $lease_s }
durability { level: LOG checkpoint_seconds: 2 }
JOB
chmod -R a+rX "$work"
start_cluster
nodes=(server-0 server-1 worker-1 worker-2 worker-3)
workers=(worker-1 worker-2 worker-3)

# of NODE FIELD: prints a field of the node's container.
of() { docker inspect --format "{{$2}}" "${container[$1]}"; }

# A restarted container uses a new process and network, and possibly a new address.
declare -A address pid started
find_nodes() {
  local node deadline=$((SECONDS + patience_s))
  for node in "${nodes[@]}"; do
    until read -r "pid[$node]" "started[$node]" "address[$node]" < <(of "$node" \
      '.State.Pid}} {{.State.StartedAt}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end') &&
      [ -n "${address[$node]}" ]; do
      [ "$SECONDS" -lt "$deadline" ] || die "$node has no address; its state is $(of "$node" .State.Status)."
      sleep 0.1
    done
  done
}

# ip_in NODE ARGUMENT...: runs `ip` in the network of the node's container.
ip_in() {
  local node="$1"
  shift
  nsenter -n -t "${pid[$node]}" ip "$@"
}

# cut "NODE NODE"...: cuts the traffic between the nodes of each pair; heal: restores it. heal fails if a container
# restarted, because the cut was then shorter than reported.
cuts=()
cut() {
  local pair
  cuts=("$@")
  find_nodes
  # shellcheck disable=SC2086
  for pair in "${cuts[@]}"; do part $pair; done
}
heal() {
  local pair node
  for node in "${nodes[@]}"; do
    [ "$(of "$node" .State.StartedAt)" = "${started[$node]}" ] || {
      docker logs --tail=15 "${container[$node]}"
      die "$node restarted while the network was cut; its log is above."
    }
  done
  # shellcheck disable=SC2086
  for pair in "${cuts[@]}"; do join $pair; done
}

# Simulates a crash, because the engine does not restart containers after `docker kill`.
crash() {
  local restarts deadline=$((SECONDS + patience_s))
  restarts="$(of "$1" .RestartCount)"
  kill -KILL "$(of "$1" .State.Pid)"
  until [ "$(of "$1" .RestartCount)" -gt "$restarts" ]; do
    [ "$SECONDS" -lt "$deadline" ] || die "$1 was killed, but the engine does not restart it."
    sleep 0.1
  done
}

# blow WHAT HIT OTHERS: checks for $cut_s that the workers HIT stall (otherwise the fault had no effect) and that
# OTHERS make progress.
blow() {
  local what="$1" node still=() process
  for node in $2; do
    stall "$cut_s" $((cut_s / 2)) "$node" >"$work/still.log" &
    still+=($!)
  done
  # shellcheck disable=SC2086
  [ -z "$3" ] || judge "$what; the others" "$cut_s" "$most" $3
  for process in "${still[@]}"; do
    ! wait "$process" || die "$what: a worker that should stall makes progress ($2)."
  done
}

for node in "${workers[@]}"; do ln -s "$(of "$node" .LogPath)" "$work/$node.log"; done
await_progress "$patience_s" "${workers[@]}"
find_nodes
docker cp "${container[worker-1]}:/certs" "$work/certs" >"$work/cp.log"
strangers_come "${address[server-0]}:7000,${address[server-1]}:7000" "$work/certs"

judge "half-open handshakes, silent pushes, a slow disk; all" 5 "$most" "${workers[@]}"
for server in server-1 server-0; do
  cut "worker-1 $server"
  blow "worker-1 is cut off from $server" worker-1 "worker-2 worker-3"
  heal
  judge "network restored; all" $((back + 2)) "$back" "${workers[@]}"
done
cut "worker-1 server-1" "worker-2 server-1" "worker-3 server-1" "server-0 server-1"
blow "server-1 is cut off from all" "${workers[*]}" ""
heal
judge "server-1 was cut off from all; all, afterwards" $((back + 2)) "$back" "${workers[@]}"
cut "worker-1 server-1" "server-0 server-1" "worker-2 server-0" "worker-3 server-0" "worker-1 worker-2" \
  "worker-1 worker-3"
blow "the halves are cut apart" "${workers[*]}" ""
heal
judge "the halves were cut apart; all, afterwards" $((back + 2)) "$back" "${workers[@]}"
strangers_go "$patience_s"

docker pause "${container[worker-2]}" >/dev/null
blow "worker-2 is paused" worker-2 "worker-1 worker-3"
docker unpause "${container[worker-2]}" >/dev/null
judge "worker-2 resumes; all" $((back + 2)) "$back" "${workers[@]}"
crash worker-3
judge "worker-3 was killed; the others" "$cut_s" "$most" worker-1 worker-2
judge "worker-3 was killed; all" $((back + 2)) "$back" "${workers[@]}"
for server in server-1 server-0; do
  crash "$server"
  judge "$server was killed; all" $((restored + 2)) "$restored" "${workers[@]}"
  say "$(docker logs "${container[$server]}" 2>&1 | grep -E 'MiB. from checkpoint|from its push log' | tail -n 1)"
done

end_job --drilled
say "restarts:$(for node in "${nodes[@]}"; do printf ' %s %s' "$node" "$(of "$node" .RestartCount)"; done)"
say "the cluster was drilled, and the consistency check passed"

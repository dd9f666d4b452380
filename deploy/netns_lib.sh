# Network namespaces that act as machines, connected by a bridge. Sourced after lib.sh. Needs root.
# shellcheck shell=bash

prefix="tps$$"
hub="$prefix-hub"
declare -A address

# Sets $binaries to the folder of the programs: TORCHPS_BINARIES, or the local build.
build_programs() {
  cd "$TORCHPS_ROOT"
  binaries="${TORCHPS_BINARIES:-}"
  [ -z "$binaries" ] || return 0
  bazel build --jobs="$(compile_jobs)" --noshow_progress --ui_event_filters=-info \
    //torchps:ps_server //torchps:ps_worker //torchps:psctl
  binaries="$(bazel info bazel-bin 2>/dev/null)"
}

# begin_network NODE...: creates the network and the folder $work. Both are removed when the script ends.
begin_network() {
  nodes=("$@")
  work="$(mktemp -d)"
  trap end_network EXIT
  trap 'exit 130' INT TERM
  make_network
}

end_network() {
  exec 2>/dev/null  # hides bash's messages about killed processes
  remove_network
  rm -rf "$work"
}

# Creates a namespace for each of $nodes and sets ${address[NODE]}. The bridge between them is in a separate namespace,
# which also uses an address.
make_network() {
  local node number=1
  ip netns add "$hub"
  ip -netns "$hub" link add switch type bridge
  # 198.18.0.0/15 is reserved for network tests (RFC 2544).
  ip -netns "$hub" address add 198.18.0.254/24 dev switch
  ip -netns "$hub" link set lo up
  ip -netns "$hub" link set switch up
  for node in "${nodes[@]}"; do
    address[$node]="198.18.0.$number"
    number=$((number + 1))
    ip netns add "$prefix-$node"
    ip -netns "$prefix-$node" link add eth0 type veth peer name "$node" netns "$hub"
    ip -netns "$prefix-$node" address add "${address[$node]}/24" dev eth0
    ip -netns "$prefix-$node" link set lo up
    ip -netns "$prefix-$node" link set eth0 up
    ip -netns "$hub" link set "$node" master switch up
  done
}

remove_network() {
  local name
  for name in "${nodes[@]/#/$prefix-}" "$hub"; do
    # Only processes started here run in these namespaces.
    ip netns pids "$name" | xargs --no-run-if-empty kill -KILL || true
    ip netns delete "$name" || true
  done
}

# ip_in NODE ARGUMENT...: runs `ip` in the node's network.
ip_in() {
  local node="$1"
  shift
  ip -netns "$prefix-$node" "$@"
}

# on NODE COMMAND...: replaces the shell with the command in the node's namespace. Output is appended to the node's log.
on() {
  local node="$1"
  shift
  exec ip netns exec "$prefix-$node" "$@" >>"$work/$node.log" 2>&1
}

# end_well NODE...: waits for ${process[NODE]}. Ends the script with an error if one failed.
end_well() {
  local node status
  for node in "$@"; do
    status=0
    # shellcheck disable=SC2154
    wait "${process[$node]}" || status=$?
    [ "$status" = 0 ] || {
      tail -n 15 "$work"/*.log
      die "$node ended with exit code $status; the logs are above."
    }
  done
}

# Stops both servers one by one, as an operator would.
stop_servers() {
  local node
  for node in server0 server1; do
    kill -TERM "${process[$node]}"
    end_well "$node"
  done
}

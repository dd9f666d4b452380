# Functions for drills of a job between network nodes: network cuts, stall measurement, unauthenticated clients.
# Sourced after lib.sh. The sourcing script provides $work, a folder with NODE.log for each worker,
# ${address[NODE]}, and ip_in NODE ARGUMENT..., which runs `ip` in the network of a node. Needs root.
# shellcheck shell=bash disable=SC2154

# An unused MAC address: packets to it are lost silently.
nobody=02:00:00:00:00:01

# part NODE NODE, join NODE NODE: cuts or restores the traffic between two nodes.
part() {
  ip_in "$1" neighbour replace "${address[$2]}" lladdr "$nobody" dev eth0 nud permanent
  ip_in "$2" neighbour replace "${address[$1]}" lladdr "$nobody" dev eth0 nud permanent
}
join() {
  ip_in "$1" neighbour delete "${address[$2]}" dev eth0
  ip_in "$2" neighbour delete "${address[$1]}" dev eth0
}

# await_progress SECONDS NODE...: waits until each of these workers has reported progress.
await_progress() {
  local deadline=$((SECONDS + $1)) node
  shift
  for node in "$@"; do
    until grep -qs 'torchps_worker progress' "$work/$node.log"; do
      [ "$SECONDS" -lt "$deadline" ] || {
        tail -n 15 "$work"/*.log
        die "$node reported no progress; the logs are above."
      }
      sleep 0.1
    done
  done
}

# stall SECONDS MOST NODE...: prints the longest time without progress of these nodes within the next SECONDS.
# Fails if it exceeds MOST seconds.
stall() {
  python3 - "$work" "$@" <<'PYTHON'
import sys, time
work, seconds, most, nodes = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]

def told(node):
    with open(f"{work}/{node}.log", encoding="utf-8") as file:
        return file.read().count("torchps_worker progress")

began = time.monotonic()
count, last, longest = {node: told(node) for node in nodes}, {node: began for node in nodes}, 0
while time.monotonic() < began + seconds:
    time.sleep(0.05)
    for node in nodes:
        now, lines = time.monotonic(), told(node)
        longest = max(longest, now - last[node])
        if lines != count[node]:
            count[node], last[node] = lines, now
print(f"{longest:.1f}")
sys.exit(longest > most)
PYTHON
}

# judge WHAT SECONDS MOST NODE...: as stall, but prints a message and ends the script on failure.
judge() {
  local what="$1" longest
  shift
  longest="$(stall "$@")" || {
    tail -n 12 "$work"/*.log
    die "$what: no progress for $longest s, at most $2 s expected; the logs are above."
  }
  say "$what: longest time without progress $longest s (bar: $2 s)"
}

# strangers_come SERVERS CERTIFICATES COMMAND...: starts half-open handshakes and silent pushes at each of SERVERS.
# COMMAND runs bench/hostile.py, which uses a worker's certificate and writes to stranger.log.
strangers_come() {
  local servers="$1" certificates="$2"
  shift 2
  mkfifo "$work/orders"
  "$@" "$TORCHPS_ROOT/bench/hostile.py" --attack="$servers" --certs="$certificates" --handshakes=300 \
    --streams=16 --rate=100 <"$work/orders" >"$work/stranger.log" 2>&1 &
  exec 9>"$work/orders"
  echo on >&9
}

# strangers_go SECONDS: stops them and prints their figures. Fails if they held no connections.
strangers_go() {
  local deadline=$((SECONDS + $1))
  echo off >&9
  exec 9>&-
  until grep -q '"held": [1-9]' "$work/stranger.log"; do
    [ "$SECONDS" -lt "$deadline" ] || die "the unauthenticated clients held no connections: $(tail -n 5 "$work/stranger.log")"
    sleep 0.1
  done
  say "unauthenticated clients: $(tail -n 1 "$work/stranger.log")"
}

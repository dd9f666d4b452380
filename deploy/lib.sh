# Shared functions of the scripts in this folder. Sourced, not run.
# shellcheck shell=bash

set -euo pipefail

# The root of the checkout, independent of the current directory.
# shellcheck disable=SC2034
TORCHPS_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }

die() {
  say "$*" >&2
  exit 1
}

# Runs a command as root, using sudo if needed.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    die "root is needed for '$*', and there is no sudo; run this as root."
  fi
}

# Prints the number of parallel compilations: one per core, if each can use 2 GB of memory (a file
# that includes libtorch needs about 1.5 GB).
compile_jobs() {
  local memory_kb jobs
  memory_kb="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  jobs=$((memory_kb / 2000000))
  [ "$jobs" -lt "$(nproc)" ] || jobs="$(nproc)"
  [ "$jobs" -ge 1 ] || jobs=1
  echo "$jobs"
}

# Options with which Bazel shows its progress: as a bar on a terminal, otherwise as a line each 10 s.
# shellcheck disable=SC2034
progress=(--ui_event_filters=-info)
[ -t 2 ] || progress+=(--curses=no --show_progress_rate_limit=10)

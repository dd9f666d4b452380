# What the scripts of this folder share; sourced, never run.
# shellcheck shell=bash

set -euo pipefail

# The root of the checkout, from wherever a script is called.
# shellcheck disable=SC2034
TORCHPS_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }

die() {
  say "$*" >&2
  exit 1
}

# Runs a command as root: as it is for root, through sudo for anyone else.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    die "root is needed for '$*', and there is no sudo; run this as root."
  fi
}

# How many compilations fit: one per core, and 2 GB of memory each (a file that includes libtorch
# takes about 1.5 GB).
compile_jobs() {
  local memory_kb jobs
  memory_kb="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  jobs=$((memory_kb / 2000000))
  [ "$jobs" -lt "$(nproc)" ] || jobs="$(nproc)"
  [ "$jobs" -ge 1 ] || jobs=1
  echo "$jobs"
}

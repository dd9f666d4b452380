#!/usr/bin/env bash
# Tests that the build notices packages installed later. Uses a bare Debian 12 container for each order, with a fresh
# clone of the committed tree:
#
#   build first    'bazel build' with only Bazel and a compiler, which fails and reports the missing
#                  package; then deploy/quickstart.sh and bench/run.sh --quick, which install it
#   install first  deploy/quickstart.sh, then bench/run.sh --quick
#
#   deploy/install_order_test.sh [--start-engine]
#
# TORCHPS_DISK_CACHE names a Bazel disk cache folder for the containers.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

image="${TORCHPS_BASE_IMAGE:-torchps-debian:12}"
"$TORCHPS_ROOT/deploy/bare_debian.sh" --image="$image" "$@"

work="$(mktemp -d)"
container="torchps-order-$$"
cleanup() {
  docker rm --force "$container" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

options=(--init --network=host)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || options+=(--env "$name")
done
[ -z "${TORCHPS_DISK_CACHE:-}" ] || options+=(--volume "$TORCHPS_DISK_CACHE:/disk-cache")

# The packages of a user who builds first.
build_first='
export DEBIAN_FRONTEND=noninteractive
apt-get -q update >/dev/null
apt-get -q install -y --no-install-recommends bazel-bootstrap bazel-platforms bazel-rules-cc \
  bazel-rules-java bazel-rules-proto bazel-skylib g++ >/dev/null 2>&1
if bazel build //torchps:ps_server >/tmp/first.log 2>&1; then
  echo "the build passed with nothing installed"; exit 1
fi
grep -m1 "deploy/setup.sh" /tmp/first.log || { tail -n 20 /tmp/first.log; exit 1; }
'
try_order() {
  local order=$1 before=$2
  git clone --quiet --no-hardlinks "$TORCHPS_ROOT" "$work/$order"
  [ -z "${TORCHPS_DISK_CACHE:-}" ] ||
    echo 'build --disk_cache=/disk-cache' >"$work/$order/.bazelrc.user"
  local started=$SECONDS
  docker run --name "$container" "${options[@]}" --volume "$work/$order:/torchps" \
    --workdir /torchps "$image" bash -c "set -eu; $before
      deploy/quickstart.sh && bench/run.sh --quick" >"$work/$order.log" 2>&1 || {
    tail -n 30 "$work/$order.log" >&2
    die "$order: failed; its last lines are above."
  }
  grep -E 'setup.sh|test accuracy|bars met|Left out' "$work/$order.log" || true
  docker rm --force "$container" >/dev/null
  say "$order: deploy/quickstart.sh and bench/run.sh --quick passed in $((SECONDS - started)) s"
}
try_order build-first "$build_first"
try_order install-first ""

#!/usr/bin/env bash
# Tests the first two commands of the README on a bare machine: a fresh clone of the committed tree in a bare
# container.
#
#   deploy/fresh_machine_test.sh [option]... quickstart|test|first_hour_test [arguments of that script]
#
#   --debian=RELEASE  12, 13 or testing                              (default: 12)
#   --limit=SECONDS   time limit for everything                      (default: 600; test and first hour: 2700)
#   --start-engine    start a Docker engine if none answers          (it keeps running)
#
# Fails if the script fails or takes longer. TORCHPS_BASE_IMAGE names another base image. TORCHPS_DISK_CACHE names
# a Bazel disk cache folder for the container, for repeated runs.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

script=""
release=12
limit_s=""
bare_options=()
arguments=()
for argument in "$@"; do
  case "$argument" in
    --debian=?*) release="${argument#*=}" ;;
    --limit=?*) limit_s="${argument#*=}" ;;
    --start-engine) bare_options+=(--start-engine) ;;
    *) if [ -z "$script" ]; then script="$argument"; else arguments+=("$argument"); fi ;;
  esac
done
case "$script" in
  quickstart) limit_s="${limit_s:-600}" ;;
  test | first_hour_test) limit_s="${limit_s:-2700}" ;;
  *) die "expected quickstart, test or first_hour_test, got '$script'." ;;
esac
[[ "$limit_s" =~ ^[0-9]+$ ]] || die "--limit=$limit_s is not a number of seconds."

image="${TORCHPS_BASE_IMAGE:-torchps-debian:$release}"
"$TORCHPS_ROOT/deploy/bare_debian.sh" --debian="$release" --image="$image" "${bare_options[@]}"

work="$(mktemp -d)"
container="torchps-fresh-$$"
cleanup() {
  docker rm --force "$container" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

git clone --quiet --no-hardlinks "$TORCHPS_ROOT" "$work/torchps"
say "clone of $(git -C "$work/torchps" log -1 --format='%h (%s)'), on $(nproc) cores"

# Passes proxy settings by name; the container uses this machine's network.
options=(--init --network=host)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || options+=(--env "$name")
done
if [ -n "${TORCHPS_DISK_CACHE:-}" ]; then
  options+=(--volume "$TORCHPS_DISK_CACHE:/disk-cache")
  echo 'build --disk_cache=/disk-cache' >"$work/torchps/.bazelrc.user"
fi

started=$SECONDS
status=0
# The container is not a child process and does not inherit the niceness.
docker run --name "$container" "${options[@]}" \
  --volume "$work/torchps:/torchps" --workdir /torchps \
  "$image" nice -n "$(nice)" "deploy/$script.sh" "${arguments[@]}" || status=$?
took_s=$((SECONDS - started))

[ "$status" = 0 ] || die "deploy/$script.sh failed in a bare Debian $release with exit code $status."
[ "$took_s" -lt "$limit_s" ] || die "deploy/$script.sh took $took_s s, the limit is $limit_s s."
say "deploy/$script.sh passed in a bare Debian $release in $took_s s (limit $limit_s s)"

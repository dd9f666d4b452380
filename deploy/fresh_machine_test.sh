#!/usr/bin/env bash
# Proves the first two commands of the README on a machine that has nothing: a fresh clone of the
# committed tree in a bare Debian 12 container.
#
#   deploy/fresh_machine_test.sh quickstart|test [--start-engine] [arguments of that script]
#
# Fails if the script does, or if quickstart takes 10 minutes or test 45, from nothing.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

script="${1:-}"
case "$script" in
  quickstart) limit_s=600 ;;
  test) limit_s=2700 ;;
  *) die "expected quickstart or test, got '$script'." ;;
esac
shift
engine_options=()
if [ "${1:-}" = --start-engine ]; then
  engine_options=(--start-engine)
  shift
fi

image="${TORCHPS_BASE_IMAGE:-torchps-debian:12}"
"$TORCHPS_ROOT/deploy/bare_debian.sh" --image="$image" "${engine_options[@]}"

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

# Proxies are set by name only; the container sees this machine's network as it is.
environment=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || environment+=(--env "$name")
done

started=$SECONDS
status=0
docker run --name "$container" --init --network=host "${environment[@]}" \
  --volume "$work/torchps:/torchps" --workdir /torchps \
  "$image" "deploy/$script.sh" "$@" || status=$?
took_s=$((SECONDS - started))

[ "$status" = 0 ] || die "deploy/$script.sh failed in the bare container with exit code $status."
[ "$took_s" -lt "$limit_s" ] || die "deploy/$script.sh took $took_s s, the limit is $limit_s s."
say "deploy/$script.sh passed in a bare container in $took_s s (limit $limit_s s)"

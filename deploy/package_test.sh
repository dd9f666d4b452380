#!/usr/bin/env bash
# Tests the packages of deploy/package.sh.
#
#   deploy/package_test.sh [--start-engine]     in a bare Debian container: installs them, trains the
#                                               digits, and builds examples/cmake with them
#   deploy/package_test.sh --quick              here: the same bytes twice, and the systemd unit

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=false
bare_options=()
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    --start-engine) bare_options+=(--start-engine) ;;
    *) die "unknown option '$argument': expected --start-engine or --quick." ;;
  esac
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$TORCHPS_ROOT/deploy/package.sh" "$work/dist"
cd "$work"

if $quick; then
  "$TORCHPS_ROOT/deploy/package.sh" "$work/again" >/dev/null
  for package in dist/*.deb; do
    cmp "$package" "again/${package#dist/}" || die "$package differs when it is made again."
    dpkg-deb -x "$package" root
  done
  root/usr/bin/psctl --version
  # Checks the unit with the program that it starts, as installed.
  sed "s|/usr/bin/ps_server|$work/root/usr/bin/ps_server|; /^Documentation/d" \
    root/usr/lib/systemd/system/ps_server@.service >ps_server@7000.service
  complaints="$(systemd-analyze verify ./ps_server@7000.service 2>&1 | grep ps_server || true)"
  [ -z "$complaints" ] || die "systemd-analyze verify: $complaints"
  say "the packages are reproducible, and the unit is valid"
  exit
fi

# shellcheck disable=SC2031  # lib.sh sets it
release="$(. /etc/os-release && echo "$VERSION_ID")"
image="torchps-debian:$release"
"$TORCHPS_ROOT/deploy/bare_debian.sh" --debian="$release" --image="$image" "${bare_options[@]}"
cp -r "$TORCHPS_ROOT/examples/cmake" example
options=(--rm --init --network=host --volume "$work:/packages")
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name:-}" ] || options+=(--env "$name")
done
docker run "${options[@]}" "$image" bash -euc '
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update >/dev/null
  begun=$SECONDS
  apt-get -q install -y --no-install-recommends /packages/dist/torchps_*.deb /packages/dist/torchps-worker_*.deb >/dev/null
  echo "installed in $((SECONDS - begun)) s"
  cd /tmp
  psctl run digits --epochs=2
  echo "first model after $((SECONDS - begun)) s"
  apt-get -q install -y --no-install-recommends /packages/dist/libtorchps-dev_*.deb cmake g++ make >/dev/null
  cmake -S /packages/example -B built >/dev/null
  cmake --build built >/dev/null
  built/spirals --local --set optimizer.learning_rate=0.2 --set training.epochs=2
'
say "the packages train the digits and build a program in a bare Debian $release"

#!/usr/bin/env bash
# Tests the packages of deploy/package.sh.
#
#   deploy/package_test.sh [--start-engine] [KIND...]   trains the digits with each kind in an empty environment, and
#                                                       builds examples/cmake with it (default: deb tar image)
#   deploy/package_test.sh --quick [KIND...]            the same bytes twice, and the systemd unit (default: deb)
#
#   deb     in a bare container of this machine's Debian release
#   tar     in a folder with nothing but glibc and the archive; the example in the container of deb
#   wheel   in a new Python environment with the same torch from pip. Needs TORCHPS_LIBTORCH (deploy/package.sh)
#   image   trains in the worker image, and looks for libtorch in the servers'
#
# Needs root, except for wheel and --quick.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=false
bare_options=()
kinds=()
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    --start-engine) bare_options+=(--start-engine) ;;
    deb | tar | wheel | image) kinds+=("$argument") ;;
    *) die "unknown argument '$argument': expected --start-engine, --quick, deb, tar, wheel or image." ;;
  esac
done
if [ "${#kinds[@]}" = 0 ]; then
  kinds=(deb tar image)
  ! $quick || kinds=(deb)
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# shellcheck source=/dev/null
release="$(. /etc/os-release && echo "$VERSION_ID")"
export TORCHPS_BASE_IMAGE="${TORCHPS_BASE_IMAGE:-torchps-debian:$release}"
learns=(--local --set optimizer.learning_rate=0.2 --set training.epochs=2)

# Succeeds if the command line names the kind.
wanted() { [[ " ${kinds[*]} " == *" $1 "* ]]; }

# in_container COMMANDS: runs them in a bare container.
in_container() {
  local options=(--rm --init --network=host --volume "$work:/packages") name
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || options+=(--env "$name")
  done
  docker run "${options[@]}" "$TORCHPS_BASE_IMAGE" bash -euc "
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update >/dev/null
    begun=\$SECONDS
    $1"
}

test_deb() {
  in_container "
    cd /packages/dist
    apt-get -q install -y --no-install-recommends ./torchps_*.deb ./torchps-worker_*.deb >/dev/null
    echo \"installed in \$((SECONDS - begun)) s\"
    cd /tmp
    psctl run digits --epochs=2
    echo \"first model after \$((SECONDS - begun)) s\"
    apt-get -q install -y --no-install-recommends /packages/dist/libtorchps-dev_*.deb cmake g++ make >/dev/null
    cmake -S /packages/example -B built >/dev/null
    cmake --build built >/dev/null
    built/spirals ${learns[*]}"
  say "the Debian packages train the digits and build a program"
}

test_tar() {
  local root="$work/root" path
  mkdir -p "$root"/{proc,dev,tmp}
  # The C library alone: no shell, no other library.
  dpkg --listfiles libc6 | grep -E '^(/usr)?/lib(64)?/' | while read -r path; do
    [ -d "$path" ] || (cd / && cp -a --parents ".$path" "$root")
  done
  tar -C "$root" -xf dist/torchps-[0-9]*.tar.gz
  in_root "/torchps-$version/bin/psctl" --version
  in_root "/torchps-$version/bin/ps_server" --version
  rm -r "$root/torchps-$version"
  tar -C "$root" -xf dist/torchps-worker-*.tar.gz
  in_root "/torchps-worker-$version/bin/psctl" run digits --epochs=2 --dir=/tmp/run
  mv "$root/torchps-worker-$version" unpacked
  in_container "
    apt-get -q install -y --no-install-recommends libtorch-dev libprotobuf-dev libabsl-dev cmake g++ make >/dev/null
    cmake -S /packages/example -B built -DCMAKE_PREFIX_PATH=/packages/unpacked >/dev/null
    cmake --build built >/dev/null
    built/spirals ${learns[*]}"
  say "the archives train the digits with nothing but glibc, and build a program"
}

# in_root COMMAND...: runs it in $root, with the file systems that every Linux has.
in_root() {
  # shellcheck disable=SC2016  # the inner shell fills in these names
  unshare --mount --pid --fork bash -euc '
    mount -t proc proc "$0/proc"
    mount --bind /dev "$0/dev"
    exec chroot "$0" "$@"' "$work/root" "$@"
}

test_wheel() {
  local torch begun prefix
  torch="$(sed -nE "s/^__version__ = '([0-9.]+).*/\1/p" "$TORCHPS_LIBTORCH/version.py")"
  python3 -m venv venv
  venv/bin/pip install --quiet "torch==$torch" || die "pip cannot install torch $torch."
  begun=$SECONDS
  venv/bin/pip install --quiet --no-index --find-links=dist torchps
  venv/bin/psctl run digits --epochs=2 --dir=run
  say "first model after $((SECONDS - begun)) s"
  prefix="$(venv/bin/python -c 'import torchps; print(torchps.cmake_prefix())')"
  cmake -S example -B by_wheel -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build by_wheel >/dev/null
  by_wheel/spirals "${learns[@]}"
  say "the wheel trains the digits and builds a program"
}

test_image() {
  docker run --rm --init torchps-worker sh -c 'cd /tmp && psctl run digits --epochs=2'
  docker run --rm torchps-server ps_server --version
  ! docker run --rm --user=0 torchps-server find / -xdev -name 'libtorch*' | grep . ||
    die "the servers' image contains libtorch."
  say "the images train the digits"
}

# What needs no other environment.
test_quickly() {
  local package
  "$TORCHPS_ROOT/deploy/package.sh" "${kinds[@]}" "$work/again" >/dev/null
  for package in dist/*; do
    cmp "$package" "again/${package#dist/}" || die "$package differs when it is made again."
  done
  say "the packages are reproducible"
  wanted deb || return 0
  for package in dist/*.deb; do dpkg-deb -x "$package" unpacked; done
  unpacked/usr/bin/psctl --version
  # Checks the unit with the program that it starts, as installed.
  sed "s|/usr/bin/ps_server|$work/unpacked/usr/bin/ps_server|; /^Documentation/d" \
    unpacked/usr/lib/systemd/system/ps_server@.service >ps_server@7000.service
  complaints="$(systemd-analyze verify ./ps_server@7000.service 2>&1 | grep ps_server || true)"
  [ -z "$complaints" ] || die "systemd-analyze verify: $complaints"
  say "the unit is valid"
}

version="$(cat "$TORCHPS_ROOT/VERSION")"
if ! $quick && { wanted deb || wanted tar || wanted image; }; then
  "$TORCHPS_ROOT/deploy/bare_debian.sh" --debian="$release" --image="$TORCHPS_BASE_IMAGE" "${bare_options[@]}"
fi
"$TORCHPS_ROOT/deploy/package.sh" "${kinds[@]}" "$work/dist"
cd "$work"
if $quick; then
  test_quickly
else
  cp -r "$TORCHPS_ROOT/examples/cmake" example
  for kind in "${kinds[@]}"; do "test_$kind"; done
fi

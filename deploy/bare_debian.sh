#!/usr/bin/env bash
# Makes a Docker image of a bare Debian with debootstrap, without a registry.
#
#   deploy/bare_debian.sh [--debian=12|13|testing] [--image=NAME] [--start-engine] [--again]
#
#   --debian=RELEASE the release                             (default: 12)
#   --image=NAME     the image's name                        (default: torchps-debian:RELEASE)
#   --start-engine   start a Docker engine if none answers   (it keeps running)
#   --again          make the image even if it exists
#
# The image contains the minimal system and this machine's access to Debian's archive: mirrors, apt
# proxy settings and trusted certificates.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

release=12
image=
start_engine=false
again=false
for argument in "$@"; do
  case "$argument" in
    --debian=?*) release="${argument#*=}" ;;
    --image=?*) image="${argument#*=}" ;;
    --start-engine) start_engine=true ;;
    --again) again=true ;;
    *) die "unknown option '$argument': expected --debian=, --image=, --start-engine or --again." ;;
  esac
done
case "$release" in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  testing) suite=testing ;;
  *) die "unknown release '$release': expected --debian=12, 13 or testing." ;;
esac
image="${image:-torchps-debian:$release}"

[ "$(id -u)" = 0 ] || die "debootstrap and the Docker engine need root; run this as root."
"$TORCHPS_ROOT/deploy/setup.sh" engine

engine_answers() { docker version >/dev/null 2>&1; }

if ! engine_answers; then
  $start_engine || die "no Docker engine answers; start one, or use --start-engine."
  engine_log=/var/log/torchps-dockerd.log
  say "starting a Docker engine (its log: $engine_log)"
  setsid dockerd >"$engine_log" 2>&1 </dev/null &
  engine=$!
  until engine_answers; do
    kill -0 "$engine" 2>/dev/null || {
      tail -n 5 "$engine_log" >&2
      die "the Docker engine did not start; its last lines are above."
    }
    sleep 0.2
  done
fi

if ! $again && docker image inspect "$image" >/dev/null 2>&1; then
  say "the image $image already exists"
  exit 0
fi

root="$(mktemp -d)"
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"

# shellcheck disable=SC2016  # apt fills in these names, not the shell
# The archive's suites and components that this machine uses, as 'address suite component'.
own_sources="$(apt-get indextargets 'Created-By: Packages' 'Origin: Debian' \
  --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 2>/dev/null | sort -u || true)"
own_suite="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")"
mirror="$(awk -v suite="$own_suite" '$2 == suite {print $1; exit}' <<<"$own_sources")"
# The same for the new release. Testing receives fixes in its main suite.
sources="$(awk -v own="$own_suite" -v suite="$suite" '
  own != "" && index($2, own) == 1 && (suite != "testing" || $2 == own) {
    sub(own, suite, $2)
    print
  }' <<<"$own_sources")"

say "making a bare Debian $release"
debootstrap --variant=minbase "$suite" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || {
  tail -n 5 "$root.log" >&2
  rm -f "$root.log"
  die "debootstrap failed; its last lines are above."
}
rm -f "$root.log"

if [ -n "$sources" ]; then
  # Testing's archive index is valid for a week; an outdated mirror may serve it for longer.
  options=""
  [ "$suite" != testing ] || options="[check-valid-until=no]"
  awk -v options="$options" '{print "deb", options, $0}' <<<"$sources" >"$root/etc/apt/sources.list"
fi
apt-config dump Acquire::http Acquire::https >"$root/etc/apt/apt.conf.d/90from-host"
if [ -f /etc/ssl/certs/ca-certificates.crt ] && [ -d /usr/local/share/ca-certificates ]; then
  mkdir -p "$root/etc/ssl/certs" "$root/usr/local/share/ca-certificates"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
fi
rm -rf "$root"/var/cache/apt/archives/*.deb

tar -C "$root" --one-file-system -c . | docker import --change 'CMD ["bash"]' - "$image" >/dev/null
say "made the image $image"

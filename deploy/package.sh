#!/usr/bin/env bash
# Makes Debian packages for this machine's release and architecture from the committed tree.
#
#   deploy/package.sh FOLDER      e.g. dist; then: apt-get install ./dist/*.deb
#
#   torchps          psctl, ps_server, its systemd unit, shell completion, manual page, job files
#   torchps-worker   ps_worker
#   libtorchps-dev   headers and library for your own programs
#
# A commit always gives the same bytes on the same release.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# = 1 ] || die "expected one argument, the folder for the packages: deploy/package.sh FOLDER."
mkdir -p -- "$1" || die "cannot make the folder $1."
out="$(cd -- "$1" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
umask 022

"$TORCHPS_ROOT/deploy/install.sh" "$work/usr"
cd "$TORCHPS_ROOT"
# dpkg-deb gives files this time unless they are older.
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export SOURCE_DATE_EPOCH
release="$(. /etc/os-release && echo "$VERSION_CODENAME")"
version="$(cat VERSION)-1~$release"
architecture="$(dpkg --print-architecture)"

# take PACKAGE PATH...: moves installed files into the package.
take() {
  local root="$work/$1" path
  shift
  for path in "$@"; do
    mkdir -p "$root/usr/$(dirname "$path")"
    mv "$work/usr/$path" "$root/usr/$path"
  done
}

# libraries FILE...: prints the packages of the shared libraries, as a Depends field. dpkg-shlibdeps
# needs a source package.
libraries() {
  mkdir -p "$work/source/debian"
  printf 'Source: torchps\n\nPackage: torchps\nArchitecture: any\n' >"$work/source/debian/control"
  (cd "$work/source" && dpkg-shlibdeps -O "$@" 2>/dev/null) | sed -n 's/^shlibs:Depends=//p'
}

# pack PACKAGE DEPENDS SECTION DESCRIPTION
pack() {
  local root="$work/$1" documents="$work/$1/usr/share/doc/$1"
  install -D -m 644 LICENSE "$documents/copyright"
  gzip -9n <CHANGELOG.md >"$work/changelog.gz"
  install -m 644 "$work/changelog.gz" "$documents/changelog.gz"
  find "$root" -type f \( -path '*/bin/*' -o -name '*.so' \) -exec strip --strip-unneeded {} +
  mkdir -p "$root/DEBIAN"
  cat >"$root/DEBIAN/control" <<CONTROL
Package: $1
Version: $version
Architecture: $architecture
Maintainer: torchps developers <noreply@torchps.invalid>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: $2
Section: $3
Priority: optional
Description: $4
CONTROL
  # Directories get the same time on every machine.
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group --build "$root" "$out" >/dev/null
  say "made $out/$1_${version}_$architecture.deb"
}

take torchps bin/psctl bin/ps_server share/bash-completion share/zsh share/fish share/man
install -D -m 644 -t "$work/torchps/usr/lib/systemd/system" deploy/install/ps_server@.service
mkdir -p "$work/torchps/usr/lib/sysusers.d" "$work/torchps/usr/share/doc/torchps/examples"
echo 'u torchps - "torchps parameter servers" /var/lib/torchps' >"$work/torchps/usr/lib/sysusers.d/torchps.conf"
cp deploy/jobs/*.textproto "$work/torchps/usr/share/doc/torchps/examples/"
mkdir -p "$work/torchps/DEBIAN"
install -m 755 /dev/stdin "$work/torchps/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
# Containers may have no systemd. Then nobody uses the unit.
if command -v systemd-sysusers >/dev/null; then systemd-sysusers torchps.conf; fi
POSTINST
gzip -9n "$work/torchps/usr/share/man/man1/psctl.1"
pack torchps "$(libraries "$work/torchps/usr/bin/psctl" "$work/torchps/usr/bin/ps_server")" net \
  "asynchronous parameter servers for C++ libtorch programs"

take torchps-worker bin/ps_worker
pack torchps-worker "torchps (= $version), $(libraries "$work/torchps-worker/usr/bin/ps_worker")" science \
  "worker that trains the models of torchps job files"

take libtorchps-dev include lib
developer="libtorch-dev, libprotobuf-dev, libabsl-dev"
pack libtorchps-dev \
  "$(libraries "$work/libtorchps-dev/usr/lib/libtorchps.so"), $developer" libdevel \
  "library for C++ libtorch programs that train with torchps"
[ -z "$(find "$work/usr" -type f)" ] || die "no package contains $(find "$work/usr" -type f -printf '%P ')."

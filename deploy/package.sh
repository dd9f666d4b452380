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

cd "$TORCHPS_ROOT"
[ -z "$(git diff HEAD)" ] ||
  die "there are changes that are not committed; a package needs a commit."
deploy/install.sh "$work/usr"
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

# find_libraries FILE...: sets $libraries to the packages of the shared libraries, as a Depends field.
# dpkg-shlibdeps needs a source package.
find_libraries() {
  mkdir -p "$work/source/debian"
  printf 'Source: torchps\n\nPackage: torchps\nArchitecture: any\n' >"$work/source/debian/control"
  libraries="$(cd "$work/source" && dpkg-shlibdeps -O "$@")"
  libraries="${libraries#shlibs:Depends=}"
  [ -n "$libraries" ] || die "dpkg-shlibdeps found no packages for $*."
}

# pack PACKAGE DEPENDS SECTION DESCRIPTION
pack() {
  local root="$work/$1" documents="$work/$1/usr/share/doc/$1"
  install -D -m 644 LICENSE "$documents/copyright"
  install -m 644 NOTICE "$documents/NOTICE"
  gzip -9n <CHANGELOG.md >"$work/changelog.gz"
  install -m 644 "$work/changelog.gz" "$documents/changelog.gz"
  find "$root" -type f \( -path '*/bin/*' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
  mkdir -p "$root/DEBIAN"
  cat >"$root/DEBIAN/control" <<CONTROL
Package: $1
Version: $version
Architecture: $architecture
Maintainer: torchps developers <noreply@torchps.invalid>
Installed-Size: $(find "$root" -type f ! -path "$root/DEBIAN/*" -printf '%s\n' | awk '{k += int(($1 + 1023) / 1024)} END {print k}')
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

# Debian's zsh reads another folder.
mkdir -p "$work/usr/share/zsh/vendor-completions"
mv "$work/usr/share/zsh/site-functions/_psctl" "$work/usr/share/zsh/vendor-completions/"
rmdir "$work/usr/share/zsh/site-functions"
take torchps bin/psctl bin/ps_server share/bash-completion share/zsh share/fish share/man
install -D -m 644 -t "$work/torchps/usr/lib/systemd/system" deploy/install/ps_server@.service
mkdir -p "$work/torchps/usr/lib/sysusers.d" "$work/torchps/usr/share/doc/torchps/examples"
echo 'u torchps - "torchps parameter servers" /var/lib/torchps' >"$work/torchps/usr/lib/sysusers.d/torchps.conf"
cp deploy/jobs/*.textproto "$work/torchps/usr/share/doc/torchps/examples/"
mkdir -p "$work/torchps/DEBIAN"
install -m 755 /dev/stdin "$work/torchps/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
# A container may have no systemd, and does not need the unit then.
if command -v systemd-sysusers >/dev/null; then systemd-sysusers torchps.conf; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
POSTINST
install -m 755 /dev/stdin "$work/torchps/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop 'ps_server@*'; fi
PRERM
gzip -9n "$work/torchps/usr/share/man/man1/psctl.1"
find_libraries "$work/torchps/usr/bin/psctl" "$work/torchps/usr/bin/ps_server"
pack torchps "$libraries" net "asynchronous parameter servers for C++ libtorch programs"

take torchps-worker bin/ps_worker
find_libraries "$work/torchps-worker/usr/bin/ps_worker"
pack torchps-worker "torchps (= $version), $libraries" science \
  "worker that trains the models of torchps job files"

take libtorchps-dev include lib
find_libraries "$work/libtorchps-dev/usr/lib/libtorchps.so"
pack libtorchps-dev "$libraries, libtorch-dev, libprotobuf-dev, libabsl-dev" libdevel \
  "library for C++ libtorch programs that train with torchps"
[ -z "$(find "$work/usr" -type f)" ] || die "no package contains $(find "$work/usr" -type f -printf '%P ')."

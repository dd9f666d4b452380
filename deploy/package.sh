#!/usr/bin/env bash
# Makes packages for this machine's release and architecture from the committed tree.
#
#   deploy/package.sh KIND... FOLDER      e.g. deploy/package.sh deb tar dist
#
#   deb     Debian packages: torchps (psctl, ps_server, a systemd unit), torchps-worker (ps_worker) and
#           libtorchps-dev (headers, library and examples for your own programs)
#   tar     archives that run from any folder and bring all libraries but glibc: torchps-VERSION-... has psctl and
#           ps_server, torchps-worker-VERSION-... has everything
#   wheel   the Python package torchps: everything, for the torch in $TORCHPS_LIBTORCH, the folder torch of a pip
#           installation. Compiles a second time
#   image   the Docker images torchps-server and torchps-worker, from the Debian packages, on $TORCHPS_BASE_IMAGE
#           (default: debian:RELEASE)
#
# All kinds contain job files, manual page, shell completion, licence and notices. A commit always gives the same bytes
# on the same release, except for images, which get the distribution's latest fixes. A tree without .git needs
# $SOURCE_DATE_EPOCH.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 2 ] || die "expected kinds and a folder: deploy/package.sh deb|tar|wheel|image... FOLDER."
kinds=("${@:1:$#-1}")
for kind in "${kinds[@]}"; do
  [[ "$kind" =~ ^(deb|tar|wheel|image)$ ]] || die "unknown kind '$kind': expected deb, tar, wheel or image."
done
folder="${*: -1}"
mkdir -p -- "$folder" || die "cannot make the folder $folder."
out="$(cd -- "$folder" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
umask 022

cd "$TORCHPS_ROOT"
if [ -e .git ]; then
  [ -z "$(git diff HEAD)" ] || die "there are changes that are not committed; a package needs a commit."
  SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
fi
[ -n "${SOURCE_DATE_EPOCH:-}" ] || die "this tree has no .git; set SOURCE_DATE_EPOCH, the time of the files."
export SOURCE_DATE_EPOCH
# The other kinds use Debian's libtorch.
pip_torch="${TORCHPS_LIBTORCH:-}"
unset TORCHPS_LIBTORCH
version="$(cat VERSION)"
system="linux-$(uname -m)"
deploy/setup.sh build package

# The contents of each part of the packages, below the prefix.
contents="
server bin/psctl
server bin/ps_server
server share/bash-completion
server share/zsh
server share/fish
server share/man
server share/doc/torchps
worker bin/ps_worker
dev    include
dev    lib
dev    share/doc/libtorchps-dev
"

# make_prefix PREFIX BAZEL_OPTION...: installs all contents, stripped.
make_prefix() {
  local prefix="$1" extra
  deploy/install.sh "$@"
  mkdir -p "$prefix/share/doc/torchps/jobs"
  cp deploy/jobs/*.textproto "$prefix/share/doc/torchps/jobs"
  mkdir -p "$prefix/share/doc/libtorchps-dev/examples"
  cp -r examples/*.cc examples/*.h examples/mnist.textproto examples/cmake "$prefix/share/doc/libtorchps-dev/examples"
  find "$prefix" -type f \( -path '*/bin/*' -o -name '*.so.*' \) -exec strip --strip-unneeded {} +
  extra="$(find "$prefix" -mindepth 1 ! -type d -printf '%P\n' |
    grep -vE "^($(awk 'NF {printf "%s%s", bar, $2; bar = "|"}' <<<"$contents"))(/|\$)" || true)"
  [ -z "$extra" ] || die "no package contains ${extra//$'\n'/ }."
}

# take PREFIX PART ROOT: copies a part of the contents.
take() {
  local part path
  while read -r part path; do
    [ "$part" = "$2" ] || continue
    mkdir -p "$3/$(dirname "$path")"
    cp -a "$1/$path" "$3/$path"
  done <<<"$contents"
}

# Sets the time of all files, folders included.
set_times() {
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

make_deb() {
  local release architecture package_version root
  release="$(. /etc/os-release && echo "$VERSION_CODENAME")"
  package_version="$version-1~$release"
  architecture="$(dpkg --print-architecture)"

  root="$work/torchps"
  take "$work/prefix" server "$root/usr"
  # Debian's zsh reads another folder.
  mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
  gzip -9n "$root/usr/share/man/man1/psctl.1"
  install -D -m 644 -t "$root/usr/lib/systemd/system" deploy/install/ps_server@.service
  mkdir -p "$root/usr/lib/sysusers.d" "$root/DEBIAN"
  echo 'u torchps - "torchps parameter servers" /var/lib/torchps' >"$root/usr/lib/sysusers.d/torchps.conf"
  install -m 755 /dev/stdin "$root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
# A container may have no systemd, and does not need the unit then.
if command -v systemd-sysusers >/dev/null; then systemd-sysusers torchps.conf; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
POSTINST
  install -m 755 /dev/stdin "$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop 'ps_server@*'; fi
PRERM
  find_libraries "$root/usr/bin/psctl" "$root/usr/bin/ps_server"
  pack torchps "$libraries" net "asynchronous parameter servers for C++ libtorch programs"

  root="$work/torchps-worker"
  take "$work/prefix" worker "$root/usr"
  find_libraries "$root/usr/bin/ps_worker"
  # Without OpenBLAS libtorch is many times slower.
  pack torchps-worker "torchps (= $package_version), $libraries, libopenblas0-pthread" science \
    "worker that trains the models of torchps job files"

  root="$work/libtorchps-dev"
  take "$work/prefix" dev "$root/usr"
  find_libraries "$root/usr/lib/libtorchps.so"
  pack libtorchps-dev "$libraries, libtorch-dev, libopenblas0-pthread, libprotobuf-dev, libabsl-dev" libdevel \
    "library for C++ libtorch programs that train with torchps"
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
  local documents="$root/usr/share/doc/$1"
  install -D -m 644 LICENSE "$documents/copyright"
  install -m 644 NOTICE "$documents/NOTICE"
  gzip -9n <CHANGELOG.md >"$documents/changelog.gz"
  mkdir -p "$root/DEBIAN"
  cat >"$root/DEBIAN/control" <<CONTROL
Package: $1
Version: $package_version
Architecture: $architecture
Maintainer: torchps developers <noreply@torchps.invalid>
Installed-Size: $(find "$root" -type f ! -path "$root/DEBIAN/*" -printf '%s\n' | awk '{k += int(($1 + 1023) / 1024)} END {print k}')
Depends: $2
Section: $3
Priority: optional
Description: $4
CONTROL
  set_times "$root"
  dpkg-deb --root-owner-group --build "$root" "$out" >/dev/null
  say "made $out/$1_${package_version}_$architecture.deb"
}

make_tar() {
  archive torchps server
  archive torchps-worker server worker dev
}

# archive NAME PART...
archive() {
  local name="$1-$version" root part
  root="$work/tar/$name"
  for part in "${@:2}"; do take "$work/prefix" "$part" "$root"; done
  cp LICENSE NOTICE CHANGELOG.md "$root"
  deploy/install/bundle.py "$root"
  tar -C "$work/tar" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu \
    -c "$name" | gzip -n >"$out/$name-$system.tar.gz"
  rm -r "$root"
  say "made $out/$name-$system.tar.gz"
}

make_wheel() {
  [ -f "$pip_torch/version.py" ] ||
    die "a wheel needs pip's torch: set TORCHPS_LIBTORCH to its folder, site-packages/torch; it is '$pip_torch'."
  TORCHPS_LIBTORCH="$pip_torch" make_prefix "$work/wheel/torchps" --platform_suffix=-wheel
  # Removes the compiler flags for this torch.
  deploy/setup.sh build
  cp deploy/install/wheel/__init__.py "$work/wheel/torchps"
  cp deploy/install/wheel/torchpsConfig.cmake "$work/wheel/torchps/lib/cmake/torchps"
  # pkg-config knows no other torch than Debian's.
  rm -r "$work/wheel/torchps/lib/pkgconfig"
  # A wheel has no links.
  rm "$work/wheel/torchps/lib/libtorchps.so"
  # The versions that the bundled libraries need; a program's machine may have others.
  cp -r /usr/include/absl /usr/include/google "$work/wheel/torchps/include"
  cp LICENSE NOTICE "$work/wheel/torchps"
  deploy/install/bundle.py --torch="$pip_torch" "$work/wheel/torchps"
  say "made $(deploy/install/make_wheel.py --torch="$pip_torch" "$work/wheel" "$out")"
}

make_image() {
  local base="${TORCHPS_BASE_IMAGE:-}" target
  # shellcheck source=/dev/null
  base="${base:-debian:$(. /etc/os-release && echo "$VERSION_ID")}"
  mkdir -p "$work/context/packages"
  cp -r .bazelrc deploy "$work/context"
  cp "$out/torchps_$version"*.deb "$out/torchps-worker_$version"*.deb "$work/context/packages"
  for target in server worker; do
    docker build --network=host --build-arg BASE_IMAGE="$base" --build-arg PACKAGES=packages \
      --file deploy/Dockerfile --target "$target" --tag "torchps-$target" --tag "torchps-$target:$version" \
      "$work/context" >"$work/log" 2>&1 || {
      tail -n 30 "$work/log" >&2
      die "the image torchps-$target could not be built; its last lines are above."
    }
    say "made the image torchps-$target:$version"
  done
}

[ "${kinds[*]}" = wheel ] || make_prefix "$work/prefix"
# Images are made from the Debian packages.
for kind in deb tar wheel image; do
  [[ " ${kinds[*]} " == *" $kind "* || ($kind == deb && " ${kinds[*]} " == *" image "*) ]] || continue
  "make_$kind"
done

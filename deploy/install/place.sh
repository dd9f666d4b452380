#!/usr/bin/env bash
# Copies built programs, library and headers, and the files of this folder, into an installed tree. A part of
# deploy/install.sh and of `cmake --install`.
#
#   deploy/install/place.sh BINARIES PREFIX       BINARIES contains torchps/psctl, torchps/libtorchps.so, ...

# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

[ $# = 2 ] || die "expected two arguments: deploy/install/place.sh BINARIES PREFIX."
binaries="$(cd -- "$1" && pwd)"
mkdir -p -- "$2" || die "cannot make the folder $2."
prefix="$(cd -- "$2" && pwd)"
cd "$TORCHPS_ROOT"

deploy/install/public_headers.py "$binaries" | while read -r path place; do
  install -D -m 644 "$place" "$prefix/include/$path"
done
soname="$(objdump -p "$binaries/torchps/libtorchps.so" | sed -n 's/^ *SONAME *//p')"
install -D -m 755 "$binaries/torchps/libtorchps.so" "$prefix/lib/$soname"
ln -sf "$soname" "$prefix/lib/libtorchps.so"
install -D -m 755 -t "$prefix/bin" \
  "$binaries/torchps/ps_worker" "$binaries/torchps/ps_server" "$binaries/torchps/psctl"
install -D -m 644 -t "$prefix/lib/cmake/torchps" deploy/install/torchpsConfig.cmake
# with_version FILE FOLDER: installs the file with this release's version filled in.
with_version() {
  mkdir -p "$2"
  sed "s/@VERSION@/$(cat VERSION)/" "deploy/install/$1" >"$2/$1"
}
with_version torchpsConfigVersion.cmake "$prefix/lib/cmake/torchps"
with_version torchps.pc "$prefix/lib/pkgconfig"
# Standard folders of the shells and man, for a PREFIX such as /usr/local.
psctl_prints() {
  mkdir -p "$(dirname "$prefix/share/$1")"
  "$prefix/bin/psctl" "${@:2}" >"$prefix/share/$1"
}
psctl_prints bash-completion/completions/psctl completion bash
psctl_prints zsh/site-functions/_psctl completion zsh
psctl_prints fish/vendor_completions.d/psctl.fish completion fish
for program in ps_server ps_worker; do
  ln -sf psctl "$prefix/share/bash-completion/completions/$program"
  ln -sf psctl.fish "$prefix/share/fish/vendor_completions.d/$program.fish"
done
psctl_prints man/man1/psctl.1 man

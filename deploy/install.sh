#!/usr/bin/env bash
# Installs torchps for programs that are not built with Bazel: headers, a library, its descriptions for CMake and
# pkg-config, the programs, shell completion, and psctl's manual page.
#
#   deploy/install.sh PREFIX        e.g. /usr/local, $HOME/torchps
#
# Then use find_package(torchps) and target_link_libraries(mine torchps::torchps) in a CMakeLists.txt, with
# -DCMAKE_PREFIX_PATH=PREFIX (see examples/cmake). A PREFIX can be moved or removed as a whole.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# = 1 ] || die "expected one argument, the folder to install into: deploy/install.sh PREFIX."
mkdir -p -- "$1" || die "cannot make the folder $1."
prefix="$(cd -- "$1" && pwd)"

"$TORCHPS_ROOT/deploy/setup.sh" build
cd "$TORCHPS_ROOT"
say "compiling with $(compile_jobs) jobs"
bazel build --stamp --jobs="$(compile_jobs)" "${progress[@]}" \
  //torchps:shared //torchps:ps_worker //torchps:ps_server //torchps:psctl
binaries="$(bazel info bazel-bin 2>/dev/null)"

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
say "torchps is in $prefix: bin/, lib/, include/, share/"

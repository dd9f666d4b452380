#!/usr/bin/env bash
# Installs torchps for programs that are not built with Bazel: headers, a library, its descriptions for CMake and
# pkg-config, the programs, shell completion, and psctl's manual page.
#
#   deploy/install.sh PREFIX [BAZEL_OPTION...]        e.g. /usr/local, $HOME/torchps
#
# Then use find_package(torchps) and target_link_libraries(mine torchps::torchps) in a CMakeLists.txt, with
# -DCMAKE_PREFIX_PATH=PREFIX (see examples/cmake). A PREFIX can be moved or removed as a whole.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 1 ] || die "expected the folder to install into: deploy/install.sh PREFIX [BAZEL_OPTION...]."
mkdir -p -- "$1" || die "cannot make the folder $1."
prefix="$(cd -- "$1" && pwd)"
shift

"$TORCHPS_ROOT/deploy/setup.sh" build
cd "$TORCHPS_ROOT"
say "compiling with $(compile_jobs) jobs"
bazel build "$@" --stamp --jobs="$(compile_jobs)" "${progress[@]}" \
  //torchps:shared //torchps:ps_worker //torchps:ps_server //torchps:psctl
binaries="$(bazel info "$@" bazel-bin 2>/dev/null)"

deploy/install/place.sh "$binaries" "$prefix"
say "torchps is in $prefix: bin/, lib/, include/, share/"

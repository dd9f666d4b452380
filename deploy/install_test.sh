#!/usr/bin/env bash
# Installs torchps into an empty folder and builds a program outside the tree with it, by CMake and by pkg-config. Both
# programs must train.
#
#   deploy/install_test.sh

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# Contains characters that are special in a shell, sed and CMake. Not |, because CMake does not quote it in Makefiles.
prefix="$work/a & b"
"$TORCHPS_ROOT/deploy/install.sh" "$prefix"
cd "$work"

# learns PROGRAM: checks the final accuracy on two spirals; chance is 0.5.
learns() {
  local accuracy
  accuracy="$("$1" --local --set optimizer.learning_rate=0.2 --set training.epochs=30 |
    sed -n 's/.* evaluation .* accuracy=\([0-9.]*\) .*/\1/p' | tail -n 1)"
  say "$1: accuracy $accuracy, expected above 0.9"
  awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy > 0.9) }' || die "$1 did not learn."
}

cmake -S "$TORCHPS_ROOT/examples/cmake" -B by_cmake -DCMAKE_PREFIX_PATH="$prefix" >cmake.log ||
  die "cmake failed: $(tail -n 3 cmake.log)"
cmake --build by_cmake >cmake.log || die "the CMake build failed: $(tail -n 3 cmake.log)"
learns by_cmake/spirals

# A user's headers with names that torchps/ also has. torchps must not include them.
for header in data/dataset.h worker/task.h program/task_setup.h job/optimizer_fields.h proto/job.pb.h; do
  [ -f "$prefix/include/torchps/$header" ] || die "$header is not installed; name another header here."
  mkdir -p "own/${header%/*}"
  echo "#error torchps includes a header of the user's" >"own/$header"
done

# The output is quoted for a shell.
eval "flags=($(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs torchps))"
# Debian installs torch's C++ headers below its C headers.
# shellcheck disable=SC2154
g++ -O1 "$TORCHPS_ROOT/examples/cmake/spirals.cc" -Iown -I/usr/include/torch/csrc/api/include "${flags[@]}" \
  -Wl,-rpath,"$prefix/lib" -o by_pkg_config || die "the build by pkg-config failed."
learns ./by_pkg_config

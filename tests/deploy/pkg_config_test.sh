#!/usr/bin/env bash
# pkg-config finds an installed torchps in any prefix.
set -eu
prefix="$TEST_TMPDIR/a & b|c"
mkdir -p "$prefix/lib/pkgconfig"
cp deploy/install/torchps.pc "$prefix/lib/pkgconfig/"
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
eval "words=($(pkg-config --cflags --libs torchps))"
for wanted in "-I$prefix/include" "-L$prefix/lib"; do
  found=false
  # shellcheck disable=SC2154
  for word in "${words[@]}"; do
    [ "${word/lib\/pkgconfig\/..\/..\//}" != "$wanted" ] || found=true
  done
  $found || {
    echo "'$wanted' is not in: ${words[*]}"
    exit 1
  }
done

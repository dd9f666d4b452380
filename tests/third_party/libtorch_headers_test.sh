#!/usr/bin/env bash
# libtorch_headers_test.sh NAMES PACKAGES [WANTED]...
#
# NAMES lists what the include folder of a libtorch repository holds. Nothing there has the name of a
# header, or of a folder of headers, that one of Debian's PACKAGES or a -dev package below them has.
# Each WANTED name is there.
set -euo pipefail
names="$1"
mapfile -t packages <"$2"
shift 2

# "libgrpc++-dev" brings libgrpc-dev, and so on. Of packages that are not installed nothing is said.
mapfile -t below < <(dpkg-query -W -f '${Depends}, ' "${packages[@]}" 2>/dev/null |
  grep -oE '[a-z0-9.+-]+-dev\b' | sort -u)
debians="$({ dpkg-query -L "${packages[@]}" "${below[@]}" 2>/dev/null || true; } |
  sed -nE 's|^/usr/include/([^/]+).*|\1|p' | sort -u)"
for known in google absl grpc grpcpp openssl; do
  grep -qxF "$known" <<<"$debians" || {
    echo "Debian's packages do not seem to have $known; this test would not notice anything."
    exit 1
  }
done

failed=0
while read -r name; do
  echo "the include folder has $name, as Debian's packages have: third_party/libtorch.bzl must leave it out"
  failed=1
done < <(grep -xF "$debians" "$names")
for name in "$@"; do
  grep -qxF "$name" "$names" || {
    echo "the include folder lacks $name, which is torch's own"
    failed=1
  }
done
exit "$failed"

#!/usr/bin/env bash
# Finds the packages of a program's libraries by this release's package names.
set -u
script=deploy/runtime_packages.sh
packages="$("$script" /bin/bash)" || { echo "it failed on /bin/bash"; exit 1; }
for wanted in libc6 libtinfo6; do
  grep -qx "$wanted" <<<"$packages" || { echo "$wanted is not in: $packages"; exit 1; }
done
if "$script" /no/such/program 2>/dev/null; then
  echo "a program that is not there was taken"
  exit 1
fi

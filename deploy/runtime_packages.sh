#!/usr/bin/env bash
# Prints the Debian packages that contain the shared libraries of programs, in any release.
#
#   deploy/runtime_packages.sh PROGRAM...

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

libraries="$(ldd "$@")" || die "ldd cannot read $*."
if grep 'not found' <<<"$libraries" >&2; then
  die "these libraries are missing."
fi
# Resolves alternatives to the selected libraries.
mapfile -t places < <(awk '$2 == "=>" && $3 ~ "^/" {print $3}' <<<"$libraries" | xargs realpath | sort -u)
# dpkg may list a file by its path before the /usr merge.
owners="$(dpkg-query --search "${places[@]}" "${places[@]#/usr}" 2>/dev/null || true)"
known="$(awk '{sub("^/usr", "", $2); print $2}' <<<"$owners")"
for place in "${places[@]}"; do
  grep -qxF "${place#/usr}" <<<"$known" || die "no package contains $place."
done
awk -F: '{print $1}' <<<"$owners" | sort -u

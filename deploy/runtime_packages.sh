#!/usr/bin/env bash
# Prints the Debian packages that have the shared libraries of programs, whatever the release calls them.
#
#   deploy/runtime_packages.sh PROGRAM...

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

libraries="$(ldd "$@")" || die "ldd cannot read $*."
if grep 'not found' <<<"$libraries" >&2; then
  die "these libraries are not there."
fi
# Where the alternatives point to: of the libraries that do one thing, the one that was chosen.
mapfile -t places < <(awk '$2 == "=>" && $3 ~ "^/" {print $3}' <<<"$libraries" | xargs realpath | sort -u)
# dpkg may know a file by its place before /lib became a part of /usr.
owners="$(dpkg-query --search "${places[@]}" "${places[@]#/usr}" 2>/dev/null || true)"
known="$(awk '{sub("^/usr", "", $2); print $2}' <<<"$owners")"
for place in "${places[@]}"; do
  grep -qxF "${place#/usr}" <<<"$known" || die "no package has $place."
done
awk -F: '{print $1}' <<<"$owners" | sort -u

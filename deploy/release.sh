#!/usr/bin/env bash
# Makes a release: checks the tree, runs all tests, makes and tests all packages, and prints the commands with which a
# person publishes it. Publishes nothing itself. Takes hours.
#
#   deploy/release.sh VERSION [FOLDER]      e.g. deploy/release.sh 0.4.0     (FOLDER: dist/VERSION)
#
# The commit must contain this version in VERSION and a heading in CHANGELOG.md: '## VERSION'. Needs root, a Docker
# engine and pip's torch in TORCHPS_LIBTORCH (deploy/package.sh). FOLDER gets the packages and SHA256SUMS.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# = 1 ] || [ $# = 2 ] || die "expected a version: deploy/release.sh VERSION [FOLDER]."
version="$1"
folder="${2:-$TORCHPS_ROOT/dist/$version}"
[[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "'$version' is no version: expected three numbers, as in 0.4.0."

cd "$TORCHPS_ROOT"
[ -z "$(git status --porcelain)" ] || die "there are changes or new files; commit or remove what 'git status' shows."
[ "$(cat VERSION)" = "$version" ] || die "VERSION contains $(cat VERSION), expected $version; change and commit it."
soversion="$(sed -n 's/.*soversion = "\(.*\)",/\1/p' torchps/BUILD)"
[ "$soversion" = "${version%.*}" ] ||
  die "torchps/BUILD has soversion $soversion, expected ${version%.*}; change and commit it."
grep -qE "^## ${version//./\\.}( |$)" CHANGELOG.md ||
  die "CHANGELOG.md has no heading '## $version'; rename '## Unreleased' and commit it."
! git show-ref --quiet "refs/tags/v$version" ||
  die "the tag v$version exists already; a new release needs a new version."
[ ! -e "$folder" ] || die "$folder exists already; remove it."
docker version >/dev/null 2>&1 || die "no Docker engine answers; start one (deploy/bare_debian.sh --start-engine does)."
[ -f "${TORCHPS_LIBTORCH:-}/version.py" ] ||
  die "the wheel needs pip's torch: set TORCHPS_LIBTORCH to its folder, site-packages/torch."

# The tests use Debian's libtorch.
(unset TORCHPS_LIBTORCH && deploy/test.sh --all)
deploy/package_test.sh deb tar wheel image
deploy/package.sh deb tar wheel image "$folder"
(cd "$folder" && sha256sum -- * >SHA256SUMS)
say "made $folder:"
(cd "$folder" && ls -sh1)

cat <<PUBLISH

To publish version $version, run:

  git tag -a v$version -m "torchps $version" && git push origin v$version
  gh release create v$version --notes-file=CHANGELOG.md $folder/*
  twine upload $folder/*.whl
  docker tag torchps-server:$version REGISTRY/torchps-server:$version && docker push REGISTRY/torchps-server:$version
  docker tag torchps-worker:$version REGISTRY/torchps-worker:$version && docker push REGISTRY/torchps-worker:$version
PUBLISH

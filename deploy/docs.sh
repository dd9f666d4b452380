#!/usr/bin/env bash
# Builds the documentation site: README.md, CHANGELOG.md and docs/ by mkdocs, and the C++ reference of the public
# headers by doxygen. Installs both if they are missing. Open FOLDER/index.html, or serve FOLDER.
#
#   deploy/docs.sh [FOLDER]        (default: .cache/site)
#
# The site needs no network. The build works on a copy of the pages: a link to a file of the tree outside docs/
# becomes the file's name, because the site has no copy of it. Fails on an undocumented symbol, on a link or an
# anchor that does not exist, and on a page that the navigation lacks.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ $# -gt 1 ] || [[ "${1:-}" = -* ]]; then die "expected at most one folder, got '$*'."; fi
site="$(realpath -m "${1:-$TORCHPS_ROOT/.cache/site}")"
# mkdocs empties the folder.
[ -e "$site/sitemap.xml" ] || [ -z "$(ls -A "$site" 2>/dev/null)" ] ||
  die "$site has other files than a site's; name another folder."
"$TORCHPS_ROOT/deploy/setup.sh" docs
cd "$TORCHPS_ROOT"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
pages="$work/pages"

say "the C++ reference"
mkdir "$pages"
cat deploy/site/Doxyfile - <<<"OUTPUT_DIRECTORY = \"$pages\"" | doxygen - ||
  die "doxygen failed; its messages are above. Document the names that they list, in one sentence each."

say "the pages"
cp -r docs/*.md docs/images CHANGELOG.md "$pages"
cp README.md "$pages/index.md"
# shellcheck disable=SC2016
sed -i -z -E 's#\]\(docs/#](#g; s#\]\(\.\./README\.md#](index.md#g; s#\[([^][]*)\]\(\.\./([^)#]*)[^)]*\)#\1 (`\2`)#g' \
  "$pages"/*.md
cp deploy/site/mkdocs.yml "$work"
mkdocs build --strict --config-file "$work/mkdocs.yml" --site-dir "$site" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  die "mkdocs failed; its messages are above."
}
deploy/site/check_links.py "$site"
say "built $site ($(du -sh "$site" | cut -f1), $(find "$site" -name '*.html' | wc -l) pages)."

#!/bin/sh
# Prints the commit of this tree for `bazel build --stamp`: $TORCHPS_COMMIT, else git's. Prints nothing
# where neither is known. Bazel runs it at the tree's root before each build (.bazelrc).
commit="${TORCHPS_COMMIT:-}"
if [ -z "$commit" ] && [ -e .git ]; then
  commit="$(git describe --always --dirty --exclude='*' --abbrev=7 2>/dev/null)"
fi
[ -z "$commit" ] || echo "STABLE_TORCHPS_COMMIT $commit"

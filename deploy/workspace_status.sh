#!/bin/sh
# Prints the commit of this tree for `bazel build --stamp`: $TORCHPS_COMMIT, or git's commit. Prints nothing if both are
# unknown. Bazel runs this at the tree's root before each build (.bazelrc).
commit="${TORCHPS_COMMIT:-}"
if [ -z "$commit" ] && [ -e .git ]; then
  commit="$(git describe --always --dirty --exclude='*' --abbrev=7 2>/dev/null)"
fi
[ -z "$commit" ] || echo "STABLE_TORCHPS_COMMIT $commit"

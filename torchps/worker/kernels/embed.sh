#!/usr/bin/env bash
# embed.sh FILE...
#
# Prints the C++ source that defines KernelSources() (kernel_sources.h): the text of each FILE, with
# the name used in #include.
set -euo pipefail
echo '#include "torchps/worker/kernels/kernel_sources.h"'
echo
echo 'namespace torchps {'
echo
echo 'const std::vector<KernelSource>& KernelSources() {'
echo '  static const std::vector<KernelSource>& sources = *new std::vector<KernelSource>{'
for file in "$@"; do
  # If another project builds this tree, Bazel adds external/NAME/ to the paths.
  echo "    {\"${file#external/*/}\", R\"TORCHPS("
  cat "$file"
  echo ')TORCHPS"},'
done
echo '  };'
echo '  return sources;'
echo '}'
echo
echo '}  // namespace torchps'

#!/bin/sh
# The example on parameter servers and the single-process example differ by fewer than 15 lines,
# removed and added lines together.
set -eu
lines=$(diff examples/mnist_single_process.cc examples/mnist_torchps.cc | grep -c '^[<>]')
echo "$lines lines differ"
test "$lines" -gt 0
test "$lines" -lt 15

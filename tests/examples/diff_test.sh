#!/bin/sh
# The example on parameter servers differs from the one in a single process by fewer than 15 lines,
# counting those that go and those that come.
set -eu
lines=$(diff examples/mnist_single_process.cc examples/mnist_torchps.cc | grep -c '^[<>]')
echo "$lines lines differ"
test "$lines" -gt 0
test "$lines" -lt 15

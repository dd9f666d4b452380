#!/bin/sh
# Both examples run without a file, a server or a network, and learn: chance is 0.1.
set -eu
learnt() {
  echo "$1: accuracy $2"
  awk -v accuracy="$2" 'BEGIN { exit !(accuracy > 0.8) }'
}
single=$(examples/mnist_single_process | sed -n 's/^accuracy //p')
learnt "single process" "$single"
local=$(examples/mnist_torchps --local --job=examples/mnist.textproto |
  sed -n 's/.* evaluation .* accuracy=\([0-9.]*\) .*/\1/p' | tail -n 1)
learnt "--local" "$local"

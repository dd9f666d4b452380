#!/bin/sh
set -eu
exec python3 tests/tools/evaluate_test.py torchps/psctl examples/mnist_torchps examples/mnist.textproto

#!/bin/sh
set -eu
exec python3 tests/tools/target_test.py torchps/psctl torchps/ps_worker deploy/jobs/mlp_digits.textproto

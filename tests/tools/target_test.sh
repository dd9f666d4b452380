#!/bin/sh
set -eu
exec python3 tests/tools/target_test.py tools/psctl program/ps_worker deploy/jobs/mlp_digits.textproto

#!/bin/sh
set -eu
exec python3 tests/tools/runs/run_folder_test.py tools/psctl program/ps_worker

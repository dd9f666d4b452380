#!/bin/sh
set -eu
exec python3 tests/tools/runs/run_folder_test.py torchps/psctl torchps/ps_worker

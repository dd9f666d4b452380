#!/bin/sh
set -eu
exec python3 tests/tools/download_flag_test.py torchps/psctl

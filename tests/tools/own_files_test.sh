#!/bin/sh
set -eu
exec python3 tests/tools/own_files_test.py torchps/psctl

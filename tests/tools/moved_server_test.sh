#!/bin/sh
set -eu
PYTHONPATH=tests/tools exec python3 tests/tools/moved_server_test.py

#!/bin/sh
set -eu
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/docs/commands_test.py

#!/bin/sh
set -eu
PYTHONPATH=tests/tools exec python3 tests/tools/by_hand_test.py

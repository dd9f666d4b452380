#!/bin/sh
set -eu
exec python3 tests/tools/by_hand_test.py

#!/bin/sh
set -eu
PYTHONPATH=tests/tools exec python3 tests/examples/stages_test.py

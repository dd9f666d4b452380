#!/usr/bin/env bash
# Runs scripts_test.py, which needs nothing but Python.
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/bench/scripts_test.py

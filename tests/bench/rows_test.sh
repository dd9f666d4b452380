#!/usr/bin/env bash
# Runs rows_test.py, which needs nothing but Python.
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/bench/rows_test.py

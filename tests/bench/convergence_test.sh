#!/usr/bin/env bash
# Runs convergence_test.py with the Python of Debian's python3-torch.
PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 tests/bench/convergence_test.py

"""Tests that a run without any step leaves a folder in which the next run may begin.

    run_folder_test.py PSCTL PS_WORKER
"""

import json
import os
import signal
import subprocess
import sys
import tempfile


def main(psctl, worker):
    psctl, worker = os.path.abspath(psctl), os.path.abspath(worker)
    os.chdir(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    # Worker 1 never joins.
    with open("half", "w", encoding="utf-8") as script:
        script.write(f'#!/bin/sh\ncase "$*" in *--slot=1*) exec sleep 1000;; esac\nexec {worker} "$@"\n')
    os.chmod("half", 0o755)

    def say(*words, code=0):
        done = subprocess.run([psctl, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        assert done.returncode == code, (words, done.returncode, done.stdout)
        return done.stdout

    words = ["digits", "--workers=2", "--epochs=1", "--set=data.train_samples=200", "--dir=runs/a"]
    with open("said", "w", encoding="utf-8") as said:
        run = subprocess.Popen([psctl, "run", *words, "--worker_binary=./half"], stdout=said, stderr=said)
    while True:
        status = subprocess.run([psctl, "status"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                check=False).stdout
        if "is gathering: 1 of 2 workers joined" in status:
            break
        assert run.poll() is None, status
    assert "running" in say("runs")
    assert "another run uses it" in say("run", *words, code=2)
    run.send_signal(signal.SIGINT)
    assert run.wait() == 1
    with open("said", encoding="utf-8") as said:
        assert "to resume" not in said.read()

    assert "stopped: interrupted" in say("runs")
    assert "no run in" in say("status", code=3)
    say("run", *words)
    assert json.loads(say("runs", "--json"))[0]["state"] == "finished"
    assert " after 1 epoch\n" in say("show", "a")
    say("runs", "--prune", "--keep=0", "--yes")
    assert not os.path.exists("runs/a")


main(*sys.argv[1:])

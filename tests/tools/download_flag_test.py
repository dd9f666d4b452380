"""Tests --download of psctl run, drill, doctor and evaluate without a network: it prints one sentence, returns an exit
code, and leaves no files.

    download_flag_test.py PSCTL
"""

import os
import socket
import subprocess
import sys
import tempfile

JOB = """
name: "mnist" workers: 2
model { name: "linear" }
data { source: "idx" }
optimizer { sgd {} learning_rate: 0.1 }
"""


def main(psctl):
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    job = os.path.join(folder, "job.textproto")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB)
    # The port is bound but not listening, so connections are refused.
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    mirror = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    cache = os.path.join(folder, "cache")
    environment = {**os.environ, "TORCHPS_CACHE": cache, "no_proxy": "127.0.0.1"}
    psctl = os.path.abspath(psctl)

    def says(code, sentence, *words):
        asked = subprocess.run([psctl, *words], env=environment, cwd=folder, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, check=False)
        assert asked.returncode == code, (words, asked.returncode, asked.stdout)
        assert asked.stdout.count(sentence) == 1, (words, asked.stdout)

    wanted = ["--download", f"--mirrors={mirror}", f"--job={job}"]
    offline = f"copy the file into {cache}/mnist by hand and leave out --download"
    says(3, offline, "run", *wanted)
    says(3, offline, "drill", "--kill=worker:every=5s", *wanted)
    says(1, offline, "doctor", *wanted)
    with open(os.path.join(folder, "x.safetensors"), "wb"):
        pass
    says(3, offline, "evaluate", "--model=x.safetensors", *wanted)
    says(2, 'needs data.source "idx", not "digits"', "run", *wanted, "--set=data.source=digits")
    assert sorted(os.listdir(folder)) == ["cache", "job.textproto", "x.safetensors"], os.listdir(folder)
    assert os.listdir(os.path.join(cache, "mnist")) == []
    print("--download says in one sentence that there is no network")


main(*sys.argv[1:])

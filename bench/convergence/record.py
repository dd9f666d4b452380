"""The figures of a run: looks at the test set on the way, lags, bytes, and samples computed in vain."""

import collections


class Record:

    def __init__(self, run, looks_per_epoch, look_samples):
        self.run = run
        self.look_samples = look_samples
        self.every = run.pool.total / run.task.epochs / looks_per_epoch
        self.looks = []
        self.lags = collections.Counter()
        self.applied = self.lost = self.bytes = self.stopped = 0
        self.early = 0  # updates without a whole batch
        self.waited = 0.0  # seconds of all workers, for the next update
        self.ended = 0.0  # so far: when samples counted last

    def counted(self, samples, lag, pushes=1):
        self.applied += samples
        self.ended = self.run.events.now
        self.lags[lag] += pushes
        if self.applied >= (len(self.looks) + 1) * self.every:
            self.look(self.look_samples)

    def look(self, samples):
        loss, accuracy = self.run.model.test(self.run.server.values, samples)
        self.looks.append({"seconds": round(self.ended, 4), "samples": self.applied,
                           "bytes": round(self.bytes), "loss": loss, "accuracy": accuracy})

    def row(self):
        if self.looks and self.looks[-1]["samples"] == self.applied:
            self.looks.pop()
        self.look(None)
        return {"looks": self.looks, "final": self.looks[-1], "pushes": sum(self.lags.values()),
                "lags": dict(sorted(self.lags.items())), "lost": self.lost, "stopped": self.stopped,
                "updates": self.run.server.version, "early": self.early, "waited": round(self.waited, 4)}

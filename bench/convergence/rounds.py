"""SYNC and DDP: a round is the mean, weighed by samples, of gradients computed on the same values."""

from training import Training


class Rounds(Training):

    def __init__(self, *arguments, **more):
        self.round = 0
        self.arrived = []  # (work, vector) of this round
        self.began = 0.0  # this round
        self.closing = None  # the round whose grace runs
        self.heard = {}  # worker -> the last round for which something of it came, in time or late
        super().__init__(*arguments, **more)
        # One of three workers, two of eight.
        self.backup = self.contestant.backup and max(self.contestant.backup, self.workers // 4)

    def start(self, worker):
        if worker in self.dead or self.work[worker] or self._has_arrived(worker):
            return
        batches = self.take(worker)
        if not batches:
            return self._close_if_complete()
        work = self.begin(worker, batches, self.server.values, self.round)
        if not self.contestant.alone:
            self._transfer(work)
        self.events.at(work.end, lambda: self._arrive(work))

    def _transfer(self, work):
        """Adds the time of a pull and a push, or of a ring's all-reduce, to the work. The all-reduce moves
        2 (P - 1) / P of the model each way after all have computed; added to each worker's step, it ends alike."""
        size = self.bytes
        if self.contestant.all_reduce:
            size *= 2 * (self.workers - 1) / self.workers
            seconds = self.scenario.transfer(size)
        else:
            seconds = 2 * self.scenario.transfer(size)
        self.record.bytes += 2 * size
        work.end += seconds

    def left(self, worker):
        if worker not in self.gone:
            self.heard[worker] = self.round
        self._close_if_complete()

    def returned(self):
        # After what is happening now: a round may be about to close.
        self.events.at(self.events.now, self._start_idle)

    def _start_idle(self):
        for worker in range(self.workers):
            self.start(worker)

    def _has_arrived(self, worker):
        return any(work.worker == worker for work, _ in self.arrived)

    def _arrive(self, work):
        if work.cancelled:
            return
        self.heard[work.worker] = work.version
        if work.version != self.round:
            self.measured(work)
            self.record.lost += work.samples
            self.lose(work)
            return self.start(work.worker)
        self.arrived.append((work, self.vector(work)))
        self.settled(work)
        self._close_if_complete()

    def _close_if_complete(self):
        if self.contestant.all_reduce and self.dead:
            return
        # Workers that have pushed, that compute (perhaps for an earlier round), and whose death is not yet known.
        expected = len(self.arrived) + sum(1 for worker in range(self.workers)
                                           if self.work[worker] or (worker in self.dead - self.gone and
                                                                    not self._has_arrived(worker)))
        if not self.arrived or len(self.arrived) < max(1, expected - self.backup):
            return
        grace = self._grace() if len(self.arrived) < expected else 0
        if grace:
            if self.closing != self.round:
                self.closing = closing = self.round
                self.events.at(self.events.now + grace, lambda: closing == self.round and self._close())
            return
        self._close()

    def _grace(self):
        """How long this round, which has its quorum, waits for the missing workers."""
        # A worker that gave nothing to the round before either computes on the values of an earlier round.
        missing = [worker for worker in range(self.workers) if worker not in self.gone and
                   not self._has_arrived(worker) and (self.work[worker] or worker in self.dead)]
        if all(self.heard.get(worker, self.round) < self.round - 1 for worker in missing):
            return 0
        return self.contestant.grace_part * (self.events.now - self.began)

    def _close(self):
        # In the order of workers, so that rounding does not depend on their speeds.
        arrived, self.arrived = sorted(self.arrived, key=lambda pair: pair[0].worker), []
        samples = sum(work.samples for work, _ in arrived)
        mean = sum(vector * (work.samples / samples) for work, vector in arrived)
        progress = min(work.progress for work, _ in arrived)
        # Values are replaced, not changed: late workers may still compute on the old ones.
        self.server.values = self.server.values.clone()
        self.server.apply(mean, progress)
        self.record.counted(samples, 0, len(arrived))
        self.round += 1
        self.began = self.events.now
        for work in self.work:
            if work and not work.cancelled:
                self._stop_if_stale(work)
        self._start_idle()

    def _stop_if_stale(self, work):
        stop = self.stop_time(work)

        def stopped():
            if not work.cancelled and self.work[work.worker] is work:
                self.stopped(work)
        if stop is not None:
            self.events.at(stop, stopped)

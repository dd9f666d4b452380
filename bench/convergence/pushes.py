"""ASYNC: each push is applied when it comes, and a worker may run ahead of the slowest by a bound."""

from training import FORWARD_PART, Training


class Pushes(Training):

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.clocks = [0] * self.workers  # settled pushes of each slot
        self.floor = 0  # the lowest clock of those that take part; it never falls
        self.parked = []  # (worker, clock, call to make when the bound admits it)
        self.idle = set()  # workers that found no samples left
        self.ahead = [None] * self.workers  # (values, version), pulled while the step before computes
        self.sent = [0.0] * self.workers  # when the slot's latest push is there
        self.seconds = self.scenario.transfer(self.bytes)

    def start(self, worker):
        """Asks for values, then computes."""
        self.idle.discard(worker)
        # A slot that comes back, or has been idle, goes on where the slowest of the others is.
        self.clocks[worker] = max(self.clocks[worker], self.floor)
        self._when_admitted(worker, self.clocks[worker], lambda: self._pull(worker))

    # The bound.

    def _raise_floor(self):
        live = [self.clocks[worker] for worker in range(self.workers)
                if worker not in self.gone and worker not in self.idle]
        self.floor = max(self.floor, min(live, default=0))

    def _may(self, clock):
        return self.contestant.bound < 0 or clock - self.floor <= self.contestant.bound

    def _when_admitted(self, worker, clock, then):
        if worker in self.dead:
            return
        if self._may(clock):
            then()
        else:
            self.parked.append((worker, clock, then))

    def _release(self):
        self._raise_floor()
        ready = [entry for entry in self.parked if self._may(entry[1])]
        self.parked = [entry for entry in self.parked if not self._may(entry[1])]
        for worker, _, then in ready:
            if worker not in self.dead:
                then()

    # A worker's turn.

    def _pull(self, worker):
        values, version = self._held()
        self.events.at(self.events.now + self.seconds, lambda: self._compute(worker, values, version))

    def _held(self):
        self.record.bytes += self.bytes
        return self.server.values.clone(), self.server.version

    def _compute(self, worker, values, version):
        self.ahead[worker] = None
        if worker in self.dead or self.work[worker]:
            return
        batches = self.take(worker)
        if not batches:
            self.idle.add(worker)
            return self._release()
        work = self.begin(worker, batches, values, version)
        # The push before must have left its memory when the backward pass begins to write there.
        work.end += max(0.0, self.sent[worker] - (work.begin + FORWARD_PART * work.seconds))
        look = self.stop_time(work)
        if self.contestant.lag == "REJECT" and look is not None:
            self.events.at(look, lambda: self._stop_if_stale(work))
        if self.contestant.prefetch:
            self.events.at(work.end - self.seconds, lambda: self._pull_ahead(work))
        self.events.at(work.end, lambda: self._computed(work))

    def _pull_ahead(self, work):
        if not work.cancelled:
            # The slot's own push is not yet there, and the bound counts it.
            clock = self.clocks[work.worker] + 1
            self._when_admitted(work.worker, clock, lambda: self._pull_now(work.worker))

    def _pull_now(self, worker):
        values, version = self._held()

        def came():
            self.ahead[worker] = (values, version)
            if not self.work[worker]:
                self._compute(worker, values, version)
        self.events.at(self.events.now + self.seconds, came)

    def _stop_if_stale(self, work):
        # It would be rejected even if no other slot pushed meanwhile.
        if not work.cancelled and self.work[work.worker] is work and self.server.rejects(work.version - 1):
            self.stopped(work)

    def _computed(self, work):
        if work.cancelled:
            return
        worker = work.worker
        vector = self.vector(work)
        self.settled(work)
        self.record.bytes += self.bytes
        self.sent[worker] = self.events.now + self.seconds
        self.events.at(self.sent[worker], lambda: self._arrive(work, vector))
        if self.ahead[worker]:
            self._compute(worker, *self.ahead[worker])

    def _arrive(self, work, vector):
        self.clocks[work.worker] += 1
        if self.server.rejects(work.version):
            self.record.lost += work.samples
            self.lose(work)
        else:
            lag = self.server.version - work.version
            step = self.whole if self.task.global_batch else self.task.batch_size
            weight = (work.samples / step if (self.balance or self.task.global_batch) and not self.server.local
                      else 1.0)
            self.server.apply(vector, work.progress, work.version, weight)
            self.record.counted(work.samples, lag)
        self._release()
        if not self.contestant.prefetch:
            self.start(work.worker)

    # Deaths and samples that come back.

    def _come_back(self, worker):
        # A new process: pushes, pulls and requests of its predecessor do not count.
        self.clocks[worker] = 0
        self.ahead[worker] = None
        self.parked = [entry for entry in self.parked if entry[0] != worker]
        super()._come_back(worker)

    def left(self, worker):
        self._release()

    def returned(self):
        for worker in sorted(self.idle):
            self.events.at(self.events.now, lambda worker=worker: worker in self.idle and self.start(worker))

"""ASYNC, the product's default: the server adds each push to a sum when it arrives. The optimizer steps when the sum
has the samples of a whole batch, whichever workers computed them. Staleness is counted in updates, and bounded."""

import collections
import statistics

from training import Training

# The usual turn of a worker is the median of so many.
TURNS = 5
# A worker that has not pushed during so many updates gets no share of the batch until it takes one again.
SILENT = 2
# A gradient that is more updates old than this is refused.
MAX_LAG = 1


class WholeBatch(Training):

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        # Shares that were planned anew meanwhile may add up to a little less than a batch.
        self.slack = max(1, self.whole / (8 * self.workers)) if self.workers > 1 else 0
        self.seconds = self.scenario.transfer(self.bytes)  # of a pull, and of a push
        self.heard = [0] * self.workers  # version at the worker's latest push or batch
        self.turns = [collections.deque(maxlen=TURNS) for _ in range(self.workers)]  # seconds
        self.waiting = {}  # worker -> when its wait for the next update began
        self.idle = set()  # workers that found no samples left
        self._clear()

    def _clear(self):
        self.sum, self.count, self.progress = 0, 0, 1.0
        self.parts = []  # (samples, lag) of each push in the sum
        self.given = set()  # workers that wait for this update

    # Shares.

    def sharers(self):
        live = super().sharers()
        return [worker for worker in live if self.heard[worker] >= self.server.version - SILENT] or live

    def batch(self, worker):
        self.heard[worker] = max(self.heard[worker], self.server.version - SILENT)
        return super().batch(worker)

    # The turn of a worker: pull, compute, push.

    def start(self, worker):
        self.idle.discard(worker)
        if worker in self.dead:
            return
        self.record.bytes += self.bytes
        values, version = self.server.values.clone(), self.server.version
        self.events.at(self.events.now + self.seconds, lambda: self._compute(worker, values, version))

    def _compute(self, worker, values, version):
        if worker in self.dead or self.work[worker]:
            return
        batches = self.take(worker)
        if not batches:
            self.idle.add(worker)
            return self._release()
        work = self.begin(worker, batches, values, version)
        look = self.stop_time(work)
        if look is not None:
            self.events.at(look, lambda: self._stop_if_stale(work))
        self.events.at(work.end, lambda: self._computed(work))

    def _is_stale(self, work):
        return self.server.version - work.version > MAX_LAG

    def _stop_if_stale(self, work):
        if not work.cancelled and self.work[work.worker] is work and self._is_stale(work):
            self.stopped(work)

    def _computed(self, work):
        if work.cancelled:
            return
        vector = self.vector(work)
        self.settled(work)
        self.record.bytes += self.bytes
        self.events.at(self.events.now + self.seconds, lambda: self._arrive(work, vector))

    def _arrive(self, work, vector):
        worker, now = work.worker, self.events.now
        # From the pull's answer to the push, as a server measures it.
        self.turns[worker].append(now - work.begin + self.seconds)
        self.heard[worker] = self.server.version
        if self._is_stale(work):
            self.record.lost += work.samples
            self.lose(work)
            return self.start(worker)
        self.sum = self.sum + vector * work.samples
        self.count += work.samples
        self.progress = min(self.progress, work.progress)
        self.parts.append((work.samples, self.server.version - work.version))
        patience = self.contestant.patience * statistics.median(self.turns[worker])
        if patience:
            self.given.add(worker)
            self.waiting[worker] = now
            self._wait(worker, now, patience)
        if self.count + self.slack >= self.whole:
            self._update()
        else:
            self._release()
        if not patience:
            self.start(worker)

    # Updates.

    def _wait(self, worker, began, patience, times=1):
        """After `patience` half of a batch is enough for an update, after twice that time a quarter, and so on."""
        def over():
            if self.waiting.get(worker) != began:
                return
            if self.count >= 0.5**times * self.whole:
                self._update()
            else:
                self._wait(worker, began, patience, times + 1)
        self.events.at(self.events.now + patience, over)

    def _release(self):
        """Makes the update if no worker is left that could add to it."""
        live = {worker for worker in range(self.workers) if worker not in self.gone and worker not in self.idle}
        if self.count and live <= self.given:
            self._update(may_be_early=self.pool.left() > 0)

    def _update(self, may_be_early=True):
        # The samples that an early update lacks count as gradient 0, also in the optimizer's moments. The last batch
        # of a job is short, and lacks none.
        early = may_be_early and self.count + self.slack < self.whole
        self.server.apply(self.sum / (self.whole if early else self.count), self.progress)
        self.record.early += early
        waiting, parts = self.waiting, self.parts
        self.waiting = {}
        self._clear()
        for samples, lag in parts:
            self.record.counted(samples, lag)
        for worker, began in waiting.items():
            self.record.waited += self.events.now - began
            self.start(worker)

    # Deaths, and samples that come back.

    def _come_back(self, worker):
        self.waiting.pop(worker, None)
        self.heard[worker] = self.server.version
        super()._come_back(worker)

    def left(self, worker):
        self._release()

    def returned(self):
        for worker in sorted(self.idle):
            self.events.at(self.events.now, lambda worker=worker: worker in self.idle and self.start(worker))

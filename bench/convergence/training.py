"""One run: workers with a core each on a virtual clock, and real gradients."""

import dataclasses

import numpy

import balance
import scenarios
from events import Events
from flat_model import FlatModel
from learner import Learner
from record import Record
from samples import SamplePool
from server import Server

# A worker that may stop looks for it between its forward and its backward pass.
FORWARD_PART = 1 / 3
# After so many stops in a row it computes to the end, so that its speed is measured.
MOST_STOPS = 3


@dataclasses.dataclass
class Work:
    """A worker's computation, from the hand-out of its batches until its push leaves."""
    worker: int
    batches: list  # (indices, progress) of each step
    values: object
    version: int  # of the values
    begin: float
    end: float  # of the computing
    seconds: float
    cancelled: bool = False

    @property
    def samples(self):
        return sum(len(indices) for indices, _ in self.batches)

    @property
    def progress(self):
        return self.batches[0][1]


class Training:
    """The common part of both rules. A rule starts workers, and decides about each result."""

    def __init__(self, task, contestant, scenario, optimizer, rate, seed, looks_per_epoch=4,
                 look_samples=5000):
        self.task, self.contestant, self.scenario = task, contestant, scenario
        self.optimizer, self.rate, self.seed = optimizer, rate, seed
        self.workers = 1 if contestant.alone else scenario.workers
        # Samples of an update, and of each worker if all are equally fast. A global batch is one process's.
        self.whole = task.batch_size * (1 if task.global_batch or contestant.alone else self.workers)
        self.equal = self.whole / self.workers
        # An equal share takes STEP_SECONDS at speed 1.
        self.step_samples = task.batch_size / scenario.workers if task.global_batch else task.batch_size
        self.events = Events()
        self.model = FlatModel(task, seed)
        self.pool = SamplePool(len(task.train[0]), task.epochs, seed)
        self.server = Server(self)
        self.learners = [Learner(self) for _ in range(self.workers)]
        self.work = [None] * self.workers
        self.stops = [0] * self.workers  # in a row
        self.stopped_seconds = [0.0] * self.workers  # of those
        self.dead = set()  # processes
        self.gone = set()  # slots that the servers no longer wait for
        self.record = Record(self, looks_per_epoch, look_samples)
        self.bytes = 4 * self.server.values.numel()
        self.balance = balance.Balance(self.workers, self.equal) if contestant.balance else None
        self._by_hand = (balance.by_hand([scenario.usual_speed(worker) for worker in range(self.workers)],
                                         self.equal) if contestant.by_hand else None)
        self._jitter = numpy.random.default_rng([seed, 2])
        self._plan_deaths()

    def run(self):
        for worker in range(self.workers):
            self.start(worker)
        self.events.run()
        if self.pool.left() or any(self.work):
            raise RuntimeError(f"{self.contestant.name}, {self.scenario.name}: the run ended with "
                               f"{self.pool.left()} samples left; a rule has forgotten a worker")
        return self.record.row()

    # A rule implements these.

    def start(self, worker):
        """Gives `worker` its next computation."""
        raise NotImplementedError

    def left(self, worker):
        """The servers gave `worker` up, or it is back."""

    def returned(self):
        """Samples were returned to the pool."""

    # Rules use these.

    def batch(self, worker):
        if self._by_hand:
            return self._by_hand[worker]
        if self.balance:
            sharers = self.sharers()
            keeps_whole = self.task.global_batch or not self.contestant.rounds
            return self.balance.batch(worker, sharers, self.server.version,
                                      self.whole if keeps_whole else self.equal * len(sharers))
        return int((worker + 1) * self.equal + 1e-9) - int(worker * self.equal + 1e-9)

    def sharers(self):
        """Workers that take a part of a step of all."""
        return [worker for worker in range(self.workers) if worker not in self.gone]

    def take(self, worker):
        """Batches for a push of `worker`; none if nothing is left."""
        batches = []
        for _ in range(max(1, self.contestant.local_steps)):
            indices, progress = self.pool.take(self.batch(worker))
            if len(indices):
                batches.append((indices, progress))
        return batches

    def begin(self, worker, batches, values, version):
        """`worker` begins to compute now."""
        seconds = scenarios.STEP_SECONDS * sum(len(indices) for indices, _ in batches) / self.step_samples
        seconds *= 1 + self.scenario.jitter * abs(self._jitter.standard_normal())
        end = self.scenario.end(worker, self.events.now, seconds, self.seed)
        self.work[worker] = work = Work(worker, batches, values, version, self.events.now, end,
                                        end - self.events.now)
        return work

    def vector(self, work):
        """The vector that `work` pushes. Call it once."""
        self.measured(work)
        return self.learners[work.worker].vector(work.values, work.batches)

    def measured(self, work):
        """Records the speed of `work`, which was computed to its end."""
        stopped, self.stopped_seconds[work.worker] = self.stopped_seconds[work.worker], 0.0
        self.stops[work.worker] = 0
        if self.balance:
            self.balance.measured(work.worker, work.samples, work.seconds + stopped)

    def settled(self, work):
        self.work[work.worker] = None

    def lose(self, work):
        """Discards `work`; its samples are handed out again."""
        work.cancelled = True
        if self.work[work.worker] is work:
            self.work[work.worker] = None
        for indices, _ in work.batches:
            self.pool.give_back(indices)
        self.returned()

    def stop_time(self, work):
        """When `work` would check whether it is stale; None if it does not."""
        look = work.begin + FORWARD_PART * work.seconds
        return look if self.stops[work.worker] < MOST_STOPS and look >= self.events.now else None

    def stopped(self, work):
        """Discards `work`; its worker begins anew now."""
        self.record.stopped += 1
        self.stops[work.worker] += 1
        self.stopped_seconds[work.worker] += self.events.now - work.begin
        self.lose(work)
        self.start(work.worker)

    # A worker that dies at half time and comes back.

    def _plan_deaths(self):
        whole = self.pool.total / self.step_samples * scenarios.STEP_SECONDS
        for worker in self.scenario.dies:
            if worker < self.workers:
                self.events.at(whole / self.workers / 2, lambda worker=worker: self._die(worker))

    def _die(self, worker):
        self.dead.add(worker)
        work = self.work[worker]
        if work:
            work.cancelled = True
        self.events.at(self.events.now + self.scenario.away_seconds, lambda: self._come_back(worker))
        # DDP waits for a new process; servers only until the slot's lease has ended.
        if not self.contestant.all_reduce:
            self.events.at(self.events.now + scenarios.LEASE_SECONDS, lambda: self._give_up(worker, work))

    def _give_up(self, worker, work):
        self.gone.add(worker)
        if work:
            self.record.lost += work.samples
            self.lose(work)
        self.left(worker)

    def _come_back(self, worker):
        self.learners[worker] = Learner(self)
        if self.work[worker]:
            self.lose(self.work[worker])
        self.dead.discard(worker)
        self.gone.discard(worker)
        self.start(worker)
        self.left(worker)

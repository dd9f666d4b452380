"""Holds the values, and applies gradients by an optimizer, a schedule and a lag policy."""

import optimizers

MOMENTUM = 0.9
# Nesterov's momentum on the differences of local steps (DiLoCo).
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9


class Server:

    def __init__(self, run):
        task, contestant, workers = run.task, run.contestant, run.workers
        self.run = run
        self.values = run.model.initial.clone()
        self.version = 0
        self.local = contestant.local_steps > 0
        self.contestant = contestant
        self.workers = workers
        whole = (run.whole if contestant.rounds or contestant.whole_batch or task.global_batch
                 else task.batch_size)
        self.schedule = optimizers.Schedule(run.pool.total / whole, task.warmup_steps, task.final_fraction)
        self.decay = run.model.decay if task.weight_decay else None
        momentum = MOMENTUM if run.optimizer == "sgd" else 0.0
        at = contestant.momentum_at if momentum else "SERVER"
        # The momentum that a worker adds to a gradient before it pushes.
        self.worker_momentum = momentum if at == "WORKER" and not self.local else 0.0
        if self.local:
            self.optimizer = (optimizers.DelayedNesterov(OUTER_MOMENTUM, workers)
                              if contestant.delayed_momentum
                              else optimizers.Sgd(OUTER_MOMENTUM, nesterov=True))
            self.decay = None
        else:
            self.optimizer = optimizers.make(run.optimizer, task, 0.0 if at == "WORKER" else momentum)
        # The lag that equal workers have, and the largest that is not rejected (Ringmaster's with each push).
        self.free_lag = max(1, workers - 1) + contestant.prefetch
        self.max_lag = 1 if contestant.whole_batch else 2 * workers

    def rate(self, progress):
        """The rate of a step, by the part of all samples handed out before its own."""
        return self.run.rate * self.schedule.factor(progress)

    def rejects(self, base):
        return self.contestant.lag == "REJECT" and self.version - base > self.max_lag

    def apply(self, gradient, progress, base, weight=1.0):
        """Applies a gradient computed on version `base`; `weight` multiplies its rate."""
        if self.contestant.lag == "WEIGH":
            gradient = gradient / max(1.0, (self.version - base) / self.free_lag)
        rate = weight * (OUTER_RATE if self.local else self.rate(progress))
        # A worker that keeps the momentum has added the decay before it.
        decay = None if self.worker_momentum else self.decay
        self.optimizer.step(self.values, gradient, rate, decay)
        self.version += 1

"""Holds the values, and applies gradients by an optimizer and a schedule."""

import optimizers

MOMENTUM = 0.9
# Nesterov's momentum on the changes made by local steps (DiLoCo).
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9


class Server:

    def __init__(self, run):
        task = run.task
        self.run = run
        self.values = run.model.initial.clone()
        self.version = 0
        self.local = run.contestant.local_steps > 0
        self.schedule = optimizers.Schedule(run.pool.total / run.whole, task.warmup_steps, task.final_fraction)
        if self.local:
            self.optimizer, self.decay = optimizers.Sgd(OUTER_MOMENTUM, nesterov=True), None
        else:
            self.optimizer = optimizers.make(run.optimizer, task, MOMENTUM if run.optimizer == "sgd" else 0.0)
            self.decay = run.model.decay if task.weight_decay else None

    def rate(self, progress):
        """The rate of a step, by the part of all samples handed out before its own."""
        return self.run.rate * self.schedule.factor(progress)

    def apply(self, gradient, progress):
        self.optimizer.step(self.values, gradient, OUTER_RATE if self.local else self.rate(progress), self.decay)
        self.version += 1

"""Computes the vector of one push: a gradient, or the change made by local steps."""

import optimizers
import server


class Learner:
    """The state of a worker's process, lost when it dies."""

    def __init__(self, run):
        self.run = run
        if run.server.local:
            momentum = server.MOMENTUM if run.optimizer == "sgd" else 0.0
            self.inner = optimizers.make(run.optimizer, run.task, momentum)

    def vector(self, values, batches):
        """Returns the vector to push, computed on `values`; `batches`: (indices, progress) for each step."""
        if self.run.server.local:
            return self._local_steps(values, batches)
        (indices, _), = batches
        return self.run.model.gradient(values, indices)

    def _local_steps(self, values, batches):
        own = values.clone()
        decay = self.run.model.decay if self.run.task.weight_decay else None
        for indices, progress in batches:
            self.inner.step(own, self.run.model.gradient(own, indices), self.run.server.rate(progress), decay)
        return values - own

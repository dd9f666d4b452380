"""Computes the vector of one push: a gradient, a gradient with momentum, or the difference of local steps."""

import optimizers
import server


class Learner:
    """The state of a worker's process, lost when it dies."""

    def __init__(self, run):
        self.run = run
        self.velocity = None
        if run.server.local:
            momentum = server.MOMENTUM if run.optimizer == "sgd" else 0.0
            self.inner = optimizers.make(run.optimizer, run.task, momentum)

    def vector(self, values, batches):
        """Returns the vector to push, computed on `values`; `batches`: (indices, progress) for each step."""
        if self.run.server.local:
            return self._local_steps(values, batches)
        (indices, _), = batches
        gradient = self.run.model.gradient(values, indices)
        momentum = self.run.server.worker_momentum
        if not momentum:
            return gradient
        if self.run.server.decay is not None:
            gradient = gradient + self.run.server.decay * values
        # DANA-Slim (Hakimi et al. 2019): Nesterov's momentum of this worker's gradients.
        if self.velocity is None:
            self.velocity = gradient.clone()
        else:
            self.velocity.mul_(momentum).add_(gradient)
        return gradient + momentum * self.velocity

    def _local_steps(self, values, batches):
        own = values.clone()
        decay = self.run.model.decay if self.run.task.weight_decay else None
        for indices, progress in batches:
            self.inner.step(own, self.run.model.gradient(own, indices), self.run.server.rate(progress), decay)
        return values - own

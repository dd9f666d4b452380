"""torch.optim's definitions on one flat vector, and the schedule.

step(values, gradient, rate, decay): `decay` is the weight decay of each element, or None.
"""

import math

import torch


class Sgd:

    def __init__(self, momentum=0.0, nesterov=False):
        self.momentum, self.nesterov, self.buffer = momentum, nesterov, None

    def step(self, values, gradient, rate, decay):
        if decay is not None:
            gradient = gradient + decay * values
        if self.momentum:
            if self.buffer is None:
                self.buffer = gradient.clone()
            else:
                self.buffer.mul_(self.momentum).add_(gradient)
            gradient = gradient + self.momentum * self.buffer if self.nesterov else self.buffer
        values.sub_(gradient, alpha=rate)


class Adam:

    def __init__(self, beta1=0.9, beta2=0.999, epsilon=1e-8, decoupled=False):
        self.beta1, self.beta2, self.epsilon, self.decoupled = beta1, beta2, epsilon, decoupled
        self.steps, self.first, self.second = 0, None, None

    def step(self, values, gradient, rate, decay):
        if self.first is None:
            self.first, self.second = torch.zeros_like(values), torch.zeros_like(values)
        if decay is not None:
            if self.decoupled:
                values.mul_(1 - rate * decay)
            else:
                gradient = gradient + decay * values
        self.steps += 1
        self.first.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        root = (self.second / (1 - self.beta2**self.steps)).sqrt_().add_(self.epsilon)
        values.addcdiv_(self.first, root, value=-rate / (1 - self.beta1**self.steps))


def make(name, task, momentum):
    """`name`: "adam" (AdamW where the task says so) or "sgd"."""
    if name == "adam":
        return Adam(beta2=task.beta2, decoupled=task.decoupled)
    return Sgd(momentum)


class Schedule:
    """Cosine with warm-up, as torchps/job/schedule.cc, by the part of the job's samples handed out."""

    def __init__(self, total_steps, warmup_steps, final_fraction):
        self.total, self.final = total_steps, final_fraction
        # A run on few samples must not be warm-up throughout. (The product refuses such a job.)
        self.warmup = warmup_steps if warmup_steps < total_steps else total_steps / 10

    def factor(self, progress):
        step = progress * self.total
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        part = min(1.0, max(0.0, (step - self.warmup) / (self.total - self.warmup)))
        return warm * (self.final + (1 - self.final) * (1 + math.cos(math.pi * part)) / 2)

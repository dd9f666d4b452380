"""A torch module whose parameters are one flat vector, as servers hold them and optimizers step them."""

import torch

# Test samples that a forward pass takes at once; more is no faster on one core.
EVALUATED_AT_ONCE = 250


def place(flat, shape):
    """`flat` as a tensor of this shape; images' channels last, which is a quarter faster here."""
    if len(shape) != 4:
        return flat.view(shape)
    return flat.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)


class FlatModel:
    """One module for all workers of a run. Each computation first copies its values in. The running statistics
    of batch norm are one moving average over all batches, in the order in which they are computed.
    """

    def __init__(self, task, seed):
        torch.manual_seed(seed)
        self.task = task
        self.module = task.module()
        named = list(self.module.named_parameters())
        size = sum(parameter.numel() for _, parameter in named)
        self.initial = torch.empty(size)
        self._values = torch.empty(size)
        self._gradient = torch.zeros(size)
        self.decay = torch.zeros(size)  # weight decay of each element
        begin = 0
        for name, parameter in named:
            end = begin + parameter.numel()
            place(self.initial[begin:end], parameter.shape).copy_(parameter.detach())
            parameter.data = place(self._values[begin:end], parameter.shape)
            parameter.grad = place(self._gradient[begin:end], parameter.shape)
            self.decay[begin:end] = 0 if task.undecayed(name) else task.weight_decay
            begin = end

    def gradient(self, values, indices):
        """The gradient of the mean loss over these training samples at `values`, clipped."""
        if not self.task.learns:
            return self._gradient
        inputs, targets = self.task.train
        chosen = torch.as_tensor(indices)
        self.module.train()
        self._values.copy_(values)
        self._gradient.zero_()
        self.task.loss(self.module(inputs[chosen]), targets[chosen]).backward()
        gradient = self._gradient.clone()
        if self.task.clip_norm:
            norm = gradient.norm().item()
            if norm > self.task.clip_norm:
                gradient *= self.task.clip_norm / norm
        return gradient

    @torch.no_grad()
    def test(self, values, most=None):
        """(mean loss, accuracy or None) over all test samples, or over some `most` of them, evenly spread:
        a test set may have its easy ones together."""
        if not self.task.learns:
            return 0.0, None
        inputs, targets = self.task.test
        every = max(1, len(inputs) // most) if most else 1
        inputs, targets = inputs[::every], targets[::every]
        count = len(inputs)
        self.module.eval()
        self._values.copy_(values)
        loss, correct = 0.0, 0
        for begin in range(0, count, EVALUATED_AT_ONCE):
            end = min(begin + EVALUATED_AT_ONCE, count)
            output = self.module(inputs[begin:end])
            loss += self.task.loss(output, targets[begin:end]).item() * (end - begin)
            if self.task.has_accuracy:
                correct += (output.argmax(-1) == targets[begin:end]).float().mean().item() * (end - begin)
        return loss / count, correct / count if self.task.has_accuracy else None

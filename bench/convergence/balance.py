"""Batches by speed (Chen et al. 2020), as training.balance has it."""

# How much of a new measurement the remembered speed takes on, and how far a batch moves from one lease to
# the next: one slow step is not yet a slow worker.
NEWNESS = 0.3
MOST_MOVED = 0.25
FLOOR, CEILING = 1 / 8, 2.0


class Balance:

    def __init__(self, workers, batch_size):
        self.batch_size = batch_size
        self._speed = [None] * workers
        self._batch = [batch_size] * workers

    def measured(self, worker, samples, seconds):
        speed, old = samples / seconds, self._speed[worker]
        self._speed[worker] = speed if old is None else old + NEWNESS * (speed - old)

    def batch(self, worker, live):
        """The next batch of `worker`, one of `live`."""
        known = [other for other in live if self._speed[other]]
        if len(known) == len(live):
            wanted = (len(live) * self.batch_size * self._speed[worker] /
                      sum(self._speed[other] for other in live))
            wanted = min(max(wanted, FLOOR * self.batch_size), CEILING * self.batch_size)
            old = self._batch[worker]
            step = max(1, MOST_MOVED * old)
            self._batch[worker] = round(min(max(wanted, old - step), old + step))
        return self._batch[worker]


def by_hand(speeds, batch_size):
    """What a man would set who knows each speed and wants the whole batch to stay as it is."""
    whole = len(speeds) * batch_size
    batches = [round(whole * speed / sum(speeds)) for speed in speeds]
    batches[-1] += whole - sum(batches)
    return batches

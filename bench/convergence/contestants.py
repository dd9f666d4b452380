"""The contestants: each is a setting of a few rules."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    rounds: bool  # SYNC and DDP; else each push counts when it comes
    what: str = ""
    like: str = ""  # the contestant whose rate it takes, with the same mathematics among equal workers
    alone: bool = False  # one process, whatever the scenario
    all_reduce: bool = False  # DDP: no server, and no worker goes on without a dead one
    by_hand: bool = False  # batches by speeds known beforehand
    balance: bool = False
    backup: int = 0  # stragglers that a round does not wait for
    round_batches: int = 0  # a round is the first P times so many gradients; 0: one of each worker
    grace_seconds: float = 0.0  # for which a round with its quorum waits for the others
    grace_part: float = 0.0  # the same, by the time from the round's beginning to its quorum; the longer counts
    waits_for_all: bool = False  # grace also for workers that missed the round before
    stop: bool = True  # a worker whose gradient would be late or rejected begins anew
    bound: int = -1  # staleness bound; -1 is none
    prefetch: bool = False
    momentum_at: str = "WORKER"  # of SGD; or "SERVER"
    lag: str = "ACCEPT"  # "WEIGH", "REJECT"
    whole_batch: bool = False  # pushes make an update when they have the samples of a whole batch
    patience: float = 0.0  # whole_batch: how long a worker that has pushed waits, by its usual turn
    local_steps: int = 0  # a push is the difference made by so many steps of the worker alone
    delayed_momentum: bool = False  # of the outer optimizer


def _sync(name, what="", **more):
    return Contestant(name, True, what, momentum_at="SERVER", **more)


def _whole_batch(name, what, **more):
    return Contestant(name, False, what, like="ddp", whole_batch=True, balance=True, momentum_at="SERVER",
                      lag="REJECT", **more)


def _async(name, what="", **more):
    return Contestant(name, False, what, **more)


ALL = {contestant.name: contestant for contestant in (
    _sync("one_process", "one process, batch size as the job has it", alone=True),
    _sync("ddp", "all-reduce", all_reduce=True),
    _sync("ddp_by_hand", "all-reduce, uneven batches set by hand", like="ddp", all_reduce=True,
          by_hand=True),
    _sync("sync", "mean of all", like="ddp"),
    _sync("sync_backup", "rounds without the last quarter of the workers, at least one", backup=1),
    _sync("sync_grace", "the same, waiting 20 ms for them", backup=1, grace_seconds=0.02, waits_for_all=True),
    _sync("sync_balanced", "batches by speed", like="ddp", balance=True),
    _sync("sync_balanced_grace", "batches by speed, without the slowest after 20 ms", balance=True, backup=1,
          grace_seconds=0.02, waits_for_all=True),
    _sync("sync_balanced_short_grace", "the same after 5 ms, a tenth of a step", balance=True, backup=1,
          grace_seconds=0.005, waits_for_all=True),
    _sync("sync_balanced_half_grace", "the same after half of the round's time, and not for those behind",
          like="ddp", balance=True, backup=1, grace_part=0.5),
    _sync("sync_balanced_quarter_grace", "after a quarter of it", like="ddp", balance=True, backup=1,
          grace_part=0.25),
    _sync("rounds_of_work", "the first P gradients on a round's values, whoever computed them (Rennala)",
          like="ddp", round_batches=1),
    _sync("rounds_of_work_2", "the same, the first 2 P", round_batches=2),
    _async("async_shipped", "s = 4, prefetch, momentum on the servers: the default before issue 20",
           bound=4, prefetch=True, momentum_at="SERVER"),
    _async("async_s4_prefetch", "s = 4, prefetch", bound=4, prefetch=True),
    _async("async_s4", "s = 4", like="async", bound=4),
    _async("async_s0", "s = 0", bound=0),
    _async("async", "no bound"),
    _async("async_prefetch", "no bound, prefetch", prefetch=True),
    _async("async_weigh", "no bound, late gradients weighed less before the moments", lag="WEIGH"),
    _async("ringmaster", "no bound, lag above 2 P rejected, stale computations begin anew", lag="REJECT"),
    _async("async_balanced", "no bound, batches by speed", like="async", balance=True),
    _async("async_balanced_s0", "s = 0, batches by speed", like="async_s0", bound=0, balance=True),
    _async("async_balanced_s4", "s = 4, batches by speed", like="async", bound=4, balance=True),
    _whole_batch("async_batch", "whole batches, waiting for one usual turn at most", patience=1.0),
    _whole_batch("buf", "whole batches, and no worker waits"),
    _async("local_32_each", "32 local steps, merged as they come", local_steps=32, delayed_momentum=True),
    _sync("local_8", "8 local steps, mean of all", local_steps=8),
    _sync("local_32", "32 local steps, mean of all", local_steps=32),
)}

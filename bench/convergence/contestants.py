"""The contestants: each is a setting of a few rules."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    rounds: bool  # SYNC and DDP: an update takes one gradient of each worker; else whole_batch.py
    what: str
    alone: bool = False  # one process, whatever the scenario
    all_reduce: bool = False  # DDP: no server, and all workers wait for a dead one
    by_hand: bool = False  # batches by speeds that the user knows
    balance: bool = False  # batches by measured speeds
    backup: int = 0  # workers that a round does not wait for
    grace_part: float = 0.0  # a round with its quorum waits so much longer, as a part of the time until the quorum
    patience: float = 0.0  # whole_batch.py: how long a worker waits for an update, as a multiple of its usual turn
    local_steps: int = 0  # a push is the change made by so many steps of the worker alone


ALL = {contestant.name: contestant for contestant in (
    Contestant("one_process", True, "one process with the job's batch", alone=True),
    Contestant("ddp", True, "all-reduce", all_reduce=True),
    Contestant("ddp_by_hand", True, "all-reduce, uneven batches set by hand", all_reduce=True, by_hand=True),
    Contestant("sync_balanced", True, "SYNC, batches by speed", balance=True),
    Contestant("sync_balanced_half_grace", True, "SYNC, batches by speed, a quarter of the workers as backup "
               "(at least one), a grace of half of the round's time", balance=True, backup=1, grace_part=0.5),
    Contestant("local_32", True, "SYNC, 32 local steps, mean of all", local_steps=32),
    Contestant("async_batch", False, "whole batches; a worker waits for one usual turn at most", balance=True,
               patience=1.0),
    Contestant("buf", False, "whole batches; no worker waits", balance=True),
)}

"""Which measurements a run takes: a list of units that take turns.

What is compared with each other stands together, so that little time lies between.
"""

import itertools

from link import Link
from sizes import KIB, LARGE, MIB, size_name
from sources import EncodingEnds, Ensemble, Gloo, Kernels, Memory, TrainStep, Skipped

SIZES = [4 * KIB, 64 * KIB, MIB, *LARGE, 400 * MIB]
WORKERS = [1, 2, 4, 8, 16]
SERVERS = [1, 2, 4]
ENCODINGS = ["float32", "bfloat16", "float16", "int8", "top_k"]
DIRECTIONS = ["push", "push_apply", "pull", "push_pull"]
# Of a repetition, for each of many workers: some ten operations of 16 MiB, fewer of larger ones, so
# that their number tells how even they were.
SECONDS_PER_WORKER = 0.15
# Model, batch, steps, steps to warm up: a repetition of a few seconds each.
MODELS = [("mlp", 64, 150, 20), ("convnet", 64, 40, 5), ("resnet18", 16, 4, 2),
          ("transformer", 8, 10, 2)]


class Unit:
    """One thing that a repetition measures. `groups`: names beside its case's that choose it.
    `alone`: it needs so much memory that it is measured before any process is started; `once`: so
    too, and in one repetition."""

    def __init__(self, case, label, measure, groups=(), once=False, alone=False, start=None):
        self.case = case
        self.label = label
        self.measure = measure
        self.names = {case, *groups}
        self.once = once
        self.alone = alone or once
        self.start = start  # what can be done before the first repetition


class Plan:
    """All units, and what has to be closed when they are done."""

    def __init__(self, options):
        self.options = options
        self.units = []
        self.sources = []
        self.ensembles = {}
        self.gloo = self._own(Gloo())
        for size in SIZES[:3] if options.quick else SIZES:
            self._over_tcp(size)
            self._on_one_host(size)
            self._over_tls(size)
            self._more_workers_and_servers(size)
        self._encoding_ends()
        self._kernels()
        self._link()
        self._train_steps()
        self._memory()
        self._choose(options.case)

    def close(self):
        for source in reversed(self.sources):
            source.close()

    def _own(self, source):
        self.sources.append(source)
        return source

    def _add(self, case, label, measure, groups=(), **how):
        self.units.append(Unit(case, label, measure, groups, **how))

    def _ensemble(self, cast, **scenario):
        """The one with these processes; cases that need the same share it."""
        key = (cast, *sorted((name, str(value)) for name, value in scenario.items()))
        if key not in self.ensembles:
            self.ensembles[key] = self._own(Ensemble(**scenario))
        return self.ensembles[key]

    def _drive(self, case, cast, groups=(), keep=True, **scenario):
        """`keep`: its processes stay, and their memory, until the run ends."""
        ensemble = self._ensemble(cast, **scenario)
        workers = scenario.get("workers", 1)
        seconds = self.options.seconds
        if workers > 1 and not self.options.quick:
            seconds = max(seconds, SECONDS_PER_WORKER * workers)
        details = ", ".join(str(value) for key, value in scenario.items()
                            if key not in ("size", "flags"))
        label = f"{case} {size_name(scenario['size'])}{', ' if details else ''}{details}"

        def measure():
            try:
                return ensemble.measure(case, seconds)
            finally:
                if not keep:
                    ensemble.close()

        self._add(case, label, measure, groups,
                  start=(lambda: ensemble.start(case)) if keep else None)

    def _product(self, case, groups=(), keep=True, **scenario):
        names = {scenario.get("transport", "tcp"), scenario.get("encoding", "float32"), *groups}
        self._drive(case, "torchps", names, keep, **scenario)

    def _kernel_seconds(self):
        """For each row of Google's benchmark library."""
        return 0.02 if self.options.quick else 0.2

    def _over_tcp(self, size):
        """One worker and one server, next to raw TCP and gloo, which go the same way."""
        for case in ("raw_tcp", "raw_tcp_answered", "raw_tcp_applied"):
            self._drive(case, "raw_tcp", size=size)
        self._directions(size, "tcp")
        if size in (MIB, *LARGE):
            self._product("push_apply", ["in_flight"], size=size, variant="4 in flight",
                          flags=["--in_flight=4"])
        if size in LARGE or (size == MIB and self.options.quick) or self.options.all:
            for encoding in ENCODINGS[1:]:
                for case in ("push_apply", "pull") if encoding != "top_k" else ("push_apply",):
                    self._product(case, ["encodings"], size=size, encoding=encoding)
        self._add("gloo_all_reduce", f"gloo_all_reduce {size_name(size)}",
                  lambda: self.gloo.measure(size, self.options.seconds))

    def _on_one_host(self, size):
        """The same through shared memory, next to what goes on in memory alone."""
        for case in ("memcpy", "in_process_apply"):
            self._drive(case, "memory", size=size)
        self._drive("shared_memory_copy", "copy", size=size)
        self._directions(size, "shm")

    def _over_tls(self, size):
        if size in (MIB, *LARGE):
            self._directions(size, "tls")

    def _directions(self, size, transport):
        for case in (["ping"] if size == SIZES[0] else []) + DIRECTIONS:
            self._product(case, size=size, transport=transport)

    def _more_workers_and_servers(self, size):
        """One worker and one server are above."""
        numbers = []
        if self.options.all:
            numbers = [(workers, servers, transport) for servers, transport, workers in
                       itertools.product(SERVERS, ("tcp", "shm"), WORKERS)
                       if workers * size <= 4 * 400 * MIB and (workers, servers) != (1, 1)]
        elif self.options.quick:
            numbers = {MIB: [(4, 1, "tcp"), (1, 2, "tcp")]}.get(size, [])
        elif size == 16 * MIB:
            numbers = [(workers, 1, transport) for transport, workers in
                       itertools.product(("tcp", "shm"), WORKERS[1:])]
            numbers += [(1, servers, "tcp") for servers in SERVERS[1:]]
        elif size == 100 * MIB:
            numbers = [(2, 1, "tcp"), (4, 1, "tcp"), (2, 1, "shm")]
            numbers += [(1, servers, "tcp") for servers in SERVERS[1:]]
        elif size == MIB:
            numbers = [(4, 1, "tcp")]
        for case, (workers, servers, transport) in itertools.product(
                ("push_apply", "pull", "push_pull"), numbers):
            groups = (["scaling"] if workers > 1 else []) + (["servers"] if servers > 1 else [])
            self._product(case, groups, size=size, workers=workers, servers=servers,
                          transport=transport)
        if size == 16 * MIB:
            # What many streams into one process cost without us, and how even the scheduler is.
            for workers in WORKERS[1:]:
                self._drive("raw_tcp", "raw_tcp", ["scaling"], size=size, workers=workers)
                self._drive("memcpy", "memory", ["scaling"], keep=False, size=size,
                            workers=workers)

    def _encoding_ends(self):
        for encoding in ENCODINGS:
            source = self._own(EncodingEnds(encoding))
            self._add("encoding_end", f"both ends of {encoding}",
                      lambda source=source: source.measure(self._kernel_seconds()),
                      ["encoding_ends", "encodings", encoding])

    def _kernels(self):
        kernels = self._own(Kernels(self.options.all))
        self._add("apply_kernel", "apply kernels",
                  lambda: kernels.measure(self._kernel_seconds()), ["apply_kernels"], alone=True)

    def _link(self):
        """A repetition has three pushes at least: those of a float32 model take 0.14 s each."""
        link = self._own(Link(gbits=1, delay_ms=0))
        size = MIB if self.options.quick else 16 * MIB
        made = {}

        def measure(case, cast, encoding):
            if (cast, encoding) not in made:
                made[cast, encoding] = self._own(Ensemble(
                    size, encoding=encoding, variant="1 Gbit/s",
                    flags=link.flags() + (["--server_flags=--insecure"] if cast == "torchps"
                                          else [])))
            samples = made[cast, encoding].measure(case, self.options.seconds)
            for sample in samples:
                sample["case"] = f"link_{case}"
            return samples

        self._add("link_raw_tcp", "raw_tcp over 1 Gbit/s",
                  lambda: measure("raw_tcp", "raw", "float32"), ["link"])
        for encoding in ENCODINGS:
            for case in ("push_apply", "pull") if encoding != "top_k" else ("push_apply",):
                self._add(f"link_{case}", f"{case} {encoding} over 1 Gbit/s",
                          lambda case=case, encoding=encoding: measure(case, "torchps", encoding),
                          ["link"])

    def _train_steps(self):
        models = MODELS[:1] if self.options.quick else MODELS
        for model, batch, steps, warm_up in models:
            if self.options.quick:
                steps, warm_up = 5, 2
            source = self._own(TrainStep(model, batch, steps, warm_up))
            for place in TrainStep.PLACES:
                self._add("train_step", f"train_step {model}, {place}",
                          lambda source=source, place=place: source.measure(place))

    def _memory(self):
        source = self._own(Memory())
        self._add("memory", "memory", lambda: source.measure(self.options.memory_seconds),
                  once=True)

    def _choose(self, names):
        """Keeps what is asked for, and raw TCP of the same sizes to compare it with."""
        if not names:
            return
        known = set().union(*(unit.names for unit in self.units))
        for name in names:
            if name not in known:
                raise Skipped(f"no case is called '{name}'; expected {', '.join(sorted(known))}")
        chosen = [unit for unit in self.units if unit.names & set(names)]
        raw = [unit for unit in self.units
               if unit.case == "raw_tcp" and "scaling" not in unit.names]
        if not any(unit in chosen for unit in raw):
            chosen = raw + chosen
        self.units = chosen

"""Which measurements a run takes: a list of units that take turns."""

import itertools

from link import Link
from sources import EncodingEnds, Ensemble, Gloo, Kernels, Memory, TrainStep, MIB, Skipped

KIB = 1 << 10
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 100 * MIB, 400 * MIB]
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
    """One thing that a repetition measures. `groups`: names beside its case's that choose it."""

    def __init__(self, case, label, measure, groups=(), once=False, start=None):
        self.case = case
        self.label = label
        self.measure = measure
        self.names = {case, *groups}
        self.once = once
        self.start = start  # what can be done before the first repetition


def size_name(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


class Plan:
    """All units, and what has to be closed when they are done."""

    def __init__(self, options):
        self.options = options
        self.units = []
        self.sources = []
        self.ensembles = {}
        self.gloo = None
        self._yardsticks()
        self._one_worker()
        self._in_flight()
        self._more_workers_and_servers()
        self._encodings()
        self._other_systems()
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

    def _add(self, case, label, measure, groups=(), once=False, start=None):
        self.units.append(Unit(case, label, measure, groups, once, start))

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

    def _sizes(self):
        return SIZES[:3] if self.options.quick else SIZES

    def _yardsticks(self):
        for size in self._sizes():
            for case in ("raw_tcp", "raw_tcp_answered"):
                self._drive(case, "raw_tcp", size=size)
            for case in ("memcpy", "in_process_apply"):
                self._drive(case, "memory", size=size)
            self._drive("shared_memory_copy", "copy", size=size)

    def _one_worker(self):
        for size, transport in itertools.product(self._sizes(), ("tcp", "shm", "tls")):
            cases = list(DIRECTIONS)
            if size == SIZES[0]:
                cases.insert(0, "ping")
            if transport == "tls" and size not in (MIB, 16 * MIB, 100 * MIB):
                continue
            for case in cases:
                self._product(case, size=size, transport=transport)

    def _more_workers_and_servers(self):
        """One worker and one server are above."""
        chosen = []
        if self.options.all:
            chosen = [(size, workers, servers, transport)
                      for size, workers, servers, transport in itertools.product(
                          SIZES, WORKERS, SERVERS, ("tcp", "shm"))
                      if workers * size <= 4 * 400 * MIB and (workers, servers) != (1, 1)]
        elif not self.options.quick:
            chosen += [(16 * MIB, workers, 1, transport)
                       for workers, transport in itertools.product(WORKERS[1:], ("tcp", "shm"))]
            chosen += [(size, 4, 1, "tcp") for size in (MIB, 100 * MIB)]
            chosen += [(size, 1, servers, "tcp")
                       for size, servers in itertools.product((16 * MIB, 100 * MIB), SERVERS[1:])]
            chosen.append((100 * MIB, 2, 1, "tcp"))
            chosen.append((100 * MIB, 2, 1, "shm"))
        else:
            chosen = [(MIB, 4, 1, "tcp"), (MIB, 1, 2, "tcp")]
        for size, workers, servers, transport in chosen:
            groups = (["scaling"] if workers > 1 else []) + (["servers"] if servers > 1 else [])
            for case in ("push_apply", "pull", "push_pull"):
                self._product(case, groups, size=size, workers=workers, servers=servers,
                              transport=transport)
        if not self.options.quick:
            # What many streams into one process cost without us, and how even the scheduler is.
            for workers in WORKERS[1:]:
                self._drive("raw_tcp", "raw_tcp", ["scaling"], size=16 * MIB, workers=workers)
                self._drive("memcpy", "memory", ["scaling"], keep=False, size=16 * MIB,
                            workers=workers)

    def _in_flight(self):
        """One worker again, with four pushes at a time over its connection."""
        for size in (MIB,) if self.options.quick else (MIB, 16 * MIB, 100 * MIB):
            self._product("push_apply", ["in_flight"], keep=False, size=size,
                          variant="4 in flight", flags=["--in_flight=4"])

    def _encodings(self):
        sizes = [MIB] if self.options.quick else SIZES if self.options.all else \
            [16 * MIB, 100 * MIB]
        for size, encoding in itertools.product(sizes, ENCODINGS[1:]):
            for case in ("push_apply", "pull") if encoding != "top_k" else ("push_apply",):
                self._product(case, ["encodings"], size=size, encoding=encoding)
        for encoding in ENCODINGS:
            source = self._own(EncodingEnds(encoding))
            self._add("encoding_end", f"both ends of {encoding}",
                      lambda source=source: source.measure(self._kernel_seconds()),
                      ["encoding_ends", "encodings", encoding])

    def _other_systems(self):
        gloo = self._own(Gloo())
        seconds = self.options.seconds
        for size in self._sizes():
            self._add("gloo_all_reduce", f"gloo_all_reduce {size_name(size)}",
                      lambda size=size: gloo.measure(size, seconds))
        kernels = self._own(Kernels(self.options.all))
        self._add("apply_kernel", "apply kernels",
                  lambda: kernels.measure(self._kernel_seconds()), ["apply_kernels"])

    def _link(self):
        """A repetition has three pushes at least: those of a float32 model take 0.14 s each."""
        link = self._own(Link())
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

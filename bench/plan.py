"""The measurements of a run: a list of units that alternate.

Units that are compared with each other are adjacent, so that they run at nearly the same time.
"""

from link import Link
from sizes import KIB, LARGE, MIB, size_name
from sources import Ensemble, Gloo, Kernels, Memory, TrainStep, Skipped

SIZES = [4 * KIB, MIB, *LARGE]
ENCODINGS = ["bfloat16", "int8", "top_k"]
CASES = ["push_apply", "pull", "push_pull"]
# Rate in Gbit/s and delay in ms each way.
LINKS = [(1, 0), (1, 1), (10, 0), (10, 1)]
# Model, batch, steps, warm-up steps: a repetition of a few seconds each.
MODELS = [("mlp", 64, 150, 20), ("convnet", 64, 40, 5), ("resnet18", 16, 4, 2),
          ("transformer", 8, 10, 2)]


class Unit:
    """One measurement of a repetition. `groups`: names that select it, in addition to its case. `alone`: needs so much
    memory that it runs before other processes start. `once`: implies `alone`, and runs in one repetition only."""

    def __init__(self, case, label, measure, groups=(), once=False, alone=False, start=None):
        self.case = case
        self.label = label
        self.measure = measure
        self.names = {case, *groups}
        self.once = once
        self.alone = alone or once
        self.start = start  # preparation before the first repetition


class Plan:
    """All units, and the sources to close at the end."""

    def __init__(self, options):
        self.options = options
        self.units = []
        self.sources = []
        self.ensembles = {}
        self.gloo = self._own(Gloo())
        for size in SIZES[:2] if options.quick else SIZES:
            self._one_worker(size)
        self._links()
        self._kernels()
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
        """Returns the ensemble with these processes; cases with the same scenario share it."""
        key = (cast, *sorted((name, str(value)) for name, value in scenario.items()))
        if key not in self.ensembles:
            self.ensembles[key] = self._own(Ensemble(**scenario))
        return self.ensembles[key]

    def _drive(self, case, cast, groups=(), **scenario):
        """Adds a data_plane unit, whose processes stay until the run ends."""
        ensemble = self._ensemble(cast, **scenario)
        details = ", ".join(str(value) for key, value in scenario.items() if key != "size")
        label = f"{case} {size_name(scenario['size'])}{', ' if details else ''}{details}"
        self._add(case, label, lambda: ensemble.measure(case, self.options.seconds), groups,
                  start=lambda: ensemble.start(case))

    def _kernel_seconds(self):
        """Returns the seconds for each row of Google Benchmark."""
        return 0.02 if self.options.quick else 0.2

    def _one_worker(self, size):
        """Adds one worker and one server, compared with raw TCP, memory alone, and gloo."""
        self._drive("raw_tcp", "raw_tcp", size=size)
        for case in ("memcpy", "in_process_apply"):
            self._drive(case, "memory", size=size)
        for transport in ("tcp", "shm"):
            for case in CASES:
                self._drive(case, "torchps", [transport], size=size, transport=transport)
        self._add("gloo_all_reduce", f"gloo_all_reduce {size_name(size)}",
                  lambda: self.gloo.measure(size, self.options.seconds))

    def _links(self):
        links = LINKS[:2] if self.options.quick else LINKS
        for gbits, delay_ms in links:
            link = self._own(Link(gbits, delay_ms))
            for case in ("raw_tcp", "push_apply", "pull"):
                self._link(link, case, "float32")
            if (gbits, delay_ms) == LINKS[0]:
                for encoding in ENCODINGS:
                    self._link(link, "push_apply", encoding)

    def _link(self, link, case, encoding):
        """Adds a unit over a link. The processes live for one repetition only, because those of all links together
        would be too many."""
        size = MIB if self.options.quick else 16 * MIB

        def measure():
            flags = link.flags()
            if case != "raw_tcp":
                flags = flags + ["--server_flags=--insecure"]
            ensemble = Ensemble(size, encoding=encoding, variant=link.name, flags=flags)
            try:
                samples = ensemble.measure(case, self.options.seconds)
            finally:
                ensemble.close()
            for sample in samples:
                sample["case"] = f"link_{case}"
            return samples

        self._add(f"link_{case}", f"{case} {encoding} over {link.name}", measure,
                  ["link"] + (["encodings"] if encoding != "float32" else []))

    def _kernels(self):
        kernels = self._own(Kernels())
        self._add("apply_kernel", "apply kernels",
                  lambda: kernels.measure(self._kernel_seconds()), ["apply_kernels"], alone=True)

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
        """Keeps the selected units, and raw TCP of the same sizes for comparison."""
        if not names:
            return
        known = set().union(*(unit.names for unit in self.units))
        for name in names:
            if name not in known:
                raise Skipped(f"unknown case '{name}'; expected {', '.join(sorted(known))}")
        chosen = [unit for unit in self.units if unit.names & set(names)]
        raw = [unit for unit in self.units if unit.case == "raw_tcp"]
        if not any(unit in chosen for unit in raw):
            chosen = raw + chosen
        self.units = chosen

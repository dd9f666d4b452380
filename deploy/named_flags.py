"""Checks that the flags and job fields named in messages, scripts and pages exist.

Part of deploy/check_house.py.
"""

import re

# Flags of other programs (bazel, docker, cmake, git, Google Benchmark, ...) that this tree mentions. Flags
# with a '-' in the name need not be listed.
FOREIGN = set("""
    abbrev always benchmark_enable_random_interleaving benchmark_filter benchmark_format benchmark_min_time benchmark_repetitions build
    bind build_event_json_file build_tag_filters cflags change check config copt curses cxxopt define depth detach
    dirty disk_cache enable_workspace env exclude file force format gtest_filter help helpfull implementation init install jobs
    keep_going libs mount name network nobuild noenable_bzlmod noshow_progress output output_groups per_file_copt platform
    prefix quiet rm search show_progress_rate_limit spawn_strategy stamp strict tag tail target target_pattern_file
    test_env test_filter test_output test_summary test_tag_filters test_timeout timeout ui_event_filters variant version
    volume volumes workdir sandbox_default_allow_network
    fork group listfiles mtime owner parents pid platform_suffix show showformat sort user
""".split())
BY_ABSL = re.compile(r"ABSL_FLAG\(\s*[^;]*?,\s*(\w+),\s")
BY_PSCTL = re.compile(r'\{"([a-z][a-z0-9_]*)",\s*"[^"]*",\s*(?:"|\w+\})')
PSCTL_FLAGS = re.compile(r"^std::vector<FlagSpec> (\w+)\([^)]*\) \{((?: [^\n]*\}$)|\n.*?^\})", re.DOTALL | re.MULTILINE)
PSCTL_COMMAND = re.compile(r'\{"(\w+)",[^&{]*&(\w+Flags),')
COMMAND_LINE = re.compile(r"\b(psctl \w+|ps_server|ps_worker)( [^|&;`#']*)")
BY_PYTHON = re.compile(r'add_argument\("--([a-z][\w-]*)"')
BY_SHELL = re.compile(r'--([a-z][\w-]*)(?:="?\?\*|\))')
NAMED = re.compile(r"(?<![-\w])--([a-z][\w-]*)")
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')

MESSAGE = re.compile(r"message (\w+) \{(.*?)\n\}", re.DOTALL)
FIELD = re.compile(r"^\s*(?:optional |repeated )?([\w.]+|map<\w+, \w+>) (\w+) = \d+;|^\s*oneof (\w+) \{", re.MULTILINE)
# A possible path of job fields. If '(' or '/' follows, it is code or a file.
PATH = re.compile(r"(?<![\w./-])([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+)(?![\w(/]|\.\w)")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def words(path):
    """Yields (line number, text) of the text that users of the program or page see."""
    for number, line in enumerate(read(path).splitlines(), 1):
        if re.search(r"\.(cc|h|cu)$", path):
            code = re.sub(r"^\s*//.*", "", line)
            line = " ".join(LITERAL.findall(code)) if not code.startswith("#include") else ""
        yield number, line


def of_kind(paths, *endings):
    return [path for path in paths if path.endswith(endings)]


def texts(paths):
    """Returns the files with text for users. Excludes the tests, which contain deliberate mistakes, and
    bench/results, which is history."""
    return [path for path in of_kind(paths, ".cc", ".h", ".cu", ".md", ".sh", ".py", ".textproto", ".yml")
            if not re.match(r"tests/|bench/results/|third_party/", path)
            and path not in ("deploy/check_house.py", "deploy/named_flags.py")]


def known_flags(paths):
    flags = set()
    for path in of_kind(paths, ".cc"):
        text = read(path)
        flags.update(BY_ABSL.findall(text))
        for _, body in PSCTL_FLAGS.findall(text):
            flags.update(BY_PSCTL.findall(body))
    for path in of_kind(paths, ".py"):
        flags.update(BY_PYTHON.findall(read(path)))
    for path in of_kind(paths, ".sh"):
        flags.update(BY_SHELL.findall(read(path)))
    return flags


def flags_of_programs(paths):
    """Returns the flags of each program and of each psctl command."""
    programs = {}
    for program, path in (("ps_server", "torchps/server_main.cc"), ("ps_worker", "torchps/program/worker_flags.cc")):
        if path in paths:
            programs[program] = set(BY_ABSL.findall(read(path))) | {"help", "helpfull", "version"}
    bodies = {name: body for path in of_kind(paths, ".cc") for name, body in PSCTL_FLAGS.findall(read(path))}

    def flags(name):
        body = bodies.get(name, "")
        found = set(BY_PSCTL.findall(body)) | {"help"}
        for other in re.findall(r"\b(\w+Flags)\(", body):
            found |= flags(other) if other != name else set()
        shared = {"CertificatesFlag()": {"certs"}, "RunFlag()": {"run"}}
        return found.union(*(flags for call, flags in shared.items() if call in body))

    for command, function in PSCTL_COMMAND.findall(
            read("torchps/psctl_main.cc") if "torchps/psctl_main.cc" in paths else ""):
        programs[f"psctl {command}"] = flags(function)
    return programs


def check_command_lines(paths):
    """Checks that the flags after a program name on the same line belong to that program."""
    programs = flags_of_programs(paths)
    for path in texts(paths):
        before = ""
        for number, line in words(path):
            line = before + line
            before = line[:-1] if line.endswith("\\") else ""
            if before:
                continue
            for program, given in COMMAND_LINE.findall(line):
                for name in NAMED.findall(given):
                    known = programs.get(program)
                    if known is not None and name not in known | FOREIGN and name[2:] not in known:
                        yield f"{path}:{number}: {program} has no flag --{name}"


def check_named_flags(paths):
    known = known_flags(paths)
    for path in texts(paths):
        for number, line in words(path):
            for name in NAMED.findall(line):
                name = name.rstrip("-_")
                # torchps flags use '_'. A name with '-' is another program's flag, or a misspelt torchps
                # flag.
                foreign = name in FOREIGN or ("-" in name and name.replace("-", "_") not in known)
                negated = name.startswith("no") and name[2:] in known
                if name not in known and not foreign and not negated:
                    yield f"{path}:{number}: there is no flag --{name}"


def job_fields():
    """Returns message -> field -> field type. The name of a oneof maps to no message."""
    messages = {}
    for name, body in MESSAGE.findall(read("torchps/proto/job.proto")):
        messages[name] = {field or oneof: kind for kind, field, oneof in FIELD.findall(body)}
    return messages


def is_field(messages, path):
    kind = "JobSpec"
    for name in path.split("."):
        if name.isdigit():
            continue
        # The program defines the names of hyperparameters.
        if kind == "HyperparameterSpec":
            return True
        if name not in messages.get(kind, {}):
            return False
        kind = messages[kind][name]
    return True


def check_named_fields(paths):
    messages = job_fields()
    # File names and torch names: model.safetensors, optimizer.step.
    file = re.compile(r"\.(safetensors|pt|pkl|textproto|json|csv|txt|cc|h|proto|md)$")
    for path in of_kind(texts(paths), ".cc", ".h", ".cu", ".md", ".textproto", ".yml"):
        if path == "CHANGELOG.md":  # mentions removed fields
            continue
        for number, line in words(path):
            for name in PATH.findall(line.replace('"', " ")):
                first = name.split(".")[0]
                composite = messages["JobSpec"].get(first) in messages
                if composite and not is_field(messages, name) and not file.search(name):
                    yield f"{path}:{number}: the job has no field {name}"

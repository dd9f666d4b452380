"""Tests that deploy/check_house.py finds faults planted in a small tree."""

import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.abspath("deploy"))

import check_house  # noqa: E402


class TreeTest(unittest.TestCase):
    """Creates a small valid tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        rooms = {"low": "", "high": "low"}
        for patch in (mock.patch.object(check_house, "MAY_INCLUDE", rooms),
                      mock.patch.object(check_house, "WITH_LIBTORCH", {"high"})):
            patch.start()
            self.addCleanup(patch.stop)
        self.paths = []
        self.write("low/a.h", "class A {\n};\n")
        self.write("high/b.h", '#include "low/a.h"\nclass B {\n};\n')

    def write(self, path, text):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if not path.endswith("BUILD"):
            self.paths.append(path)


class CheckHouseTest(TreeTest):

    def test_accepts_a_valid_tree(self):
        self.write("tests/low/a_test.cc", '#include "high/b.h"\n#include <torch/types.h>\n')
        self.assertEqual(list(check_house.check_arrows(self.paths)), [])
        self.assertEqual(list(check_house.check_order()), [])
        self.assertEqual(list(check_house.check_libtorch(self.paths)), [])
        self.assertEqual(list(check_house.check_names(self.paths)), [])

    def test_finds_an_upward_include(self):
        self.write("low/a.cc", '#include "high/b.h"\n')
        self.assertEqual(list(check_house.check_arrows(self.paths)),
                         ["low/a.cc: low may not include from high"])

    def test_finds_an_unknown_folder(self):
        self.write("attic/c.cc", '#include "low/a.h"\n')
        self.assertIn("unknown room attic", list(check_house.check_arrows(self.paths))[0])

    def test_finds_a_folder_without_werror(self):
        self.write("low/a.cc", "")
        self.write("high/b.cc", "")
        with open(".bazelrc", "w", encoding="utf-8") as file:
            file.write("build --per_file_copt=.*,-^(//)?(low)[/:]@-Wno-error\n")
        self.assertEqual(list(check_house.check_warnings(self.paths)),
                         ["high is compiled without -Werror; list it where .bazelrc says -Wno-error"])

    def test_finds_an_unused_permission(self):
        self.write("high/b.h", "class B {\n};\n")
        self.assertEqual(list(check_house.check_arrows(self.paths)),
                         ["deploy/check_house.py: high no longer includes from low; remove that entry"])

    def test_finds_a_cycle_of_folders(self):
        with mock.patch.object(check_house, "MAY_INCLUDE", {"low": "high", "high": "low"}):
            self.assertIn("the rooms form a cycle: low -> high -> low",
                          list(check_house.check_order()))

    def test_finds_forbidden_use_of_libtorch(self):
        self.write("low/a.cc", "#include <torch/types.h>\n")
        self.assertEqual(list(check_house.check_libtorch(self.paths)),
                         ["low/a.cc: low may not see libtorch"])

    def test_finds_an_old_name(self):
        self.write("low/a.cc", "int x;\nPulse pulse;\n")
        self.assertEqual(list(check_house.check_old_names(self.paths)),
                         ["low/a.cc:2: Pulse is an old name; see OLD_NAMES in deploy/check_house.py"])

    def test_checks_commit_subjects(self):
        log = "1 client: retry a push\n2 Client retries\n3 a: " + "b" * 63 + "\n"
        with mock.patch.object(check_house.subprocess, "run") as run:
            run.return_value.stdout = log
            self.assertEqual([line[:8] for line in check_house.check_subjects()], ["commit 2", "commit 3"])

    def test_finds_duplicate_class_names(self):
        space = "namespace torchps {\n%s\n}\n"
        self.write("low/c.h", space % "class C final : public A {")
        self.write("low/d.h", space % "enum class C {")
        self.write("low/e.h", "namespace torchps::other {\nstruct C {\n}\n")
        # These do not define C: a declaration, and a nested class.
        self.write("low/f.h", space % "class C;\nclass C::Inside {\n")
        self.assertEqual(list(check_house.check_names(self.paths)),
                         ["torchps::C is defined in low/c.h and low/d.h"])


class NamedFlagsTest(TreeTest):
    """Tests deploy/named_flags.py: flags and fields named in messages, scripts and pages exist."""

    def setUp(self):
        super().setUp()
        self.write("torchps/server/main.cc", 'ABSL_FLAG(std::string, listen, "",\n          "where");\n'
                                     'ABSL_FLAG(bool, insecure, false, "without TLS");\n')
        self.write("torchps/tools/run.cc", 'std::vector<FlagSpec> RunFlags() {\n  return {{"job", "FILE", "It."}};\n}\n'
                                   'const char* kNoFlag[] = {"status", "", "Shows."};\n')
        self.write("deploy/a.sh", '  case "$1" in\n    --image=?*) ;;\n    --again) ;;\n')
        self.write("torchps/proto/job.proto", "message JobSpec {\n  string name = 1;\n  DataSpec data = 2;\n"
                                      "  repeated HyperparameterSpec hyperparameter = 3;\n}\n"
                                      "message DataSpec {\n  oneof kind {\n    string path = 1;\n  }\n}\n"
                                      "message HyperparameterSpec {\n  string name = 1;\n}\n")

    def flags(self):
        return list(check_house.check_named_flags(self.paths))

    def fields(self):
        return list(check_house.check_named_fields(self.paths))

    def test_accepts_existing_flags(self):
        self.write("high/b.cc", 'say("--listen=A:1, --noinsecure, --job, --image=X");  // --nothing\n'
                                'say("docker --mount-point, bazel --config=tsan, a -- b");\n')
        self.assertEqual(self.flags(), [])

    def test_finds_an_unknown_flag(self):
        self.write("high/b.cc", '\nsay("name another with --lisen=A");\n')
        self.write("README.md", "`psctl run --status`, and `--exit-with`\n")
        self.write("docs/a.md", "ps_server --in-secure\n")
        self.assertEqual(self.flags(), ["high/b.cc:2: there is no flag --lisen",
                                        "README.md:1: there is no flag --status"])

    def test_torchps_flags_use_underscores(self):
        self.write("torchps/server/more.cc", 'ABSL_FLAG(int, local_servers, 2, "");\n')
        self.write("README.md", "--local-servers=2\n")
        self.assertEqual(self.flags(), ["README.md:1: there is no flag --local-servers"])

    def test_accepts_flags_of_other_programs(self):
        self.write("torchps/psctl_main.cc", 'constexpr Command kCommands[] = {\n'
                   '    {"run", "Runs.",\n     "psctl run --job=FILE", &RunFlags, &RunCommand},\n'
                   '    {"look", "Looks.", "psctl look --job=FILE --out=F", &LookFlags, &LookCommand},\n};\n')
        self.write("torchps/tools/look.cc", 'std::vector<FlagSpec> LookFlags() { return AllFlags(true); }\n\n'
                   'std::vector<FlagSpec> AllFlags(bool x) {\n'
                   '  auto flags = RunFlags();\n  flags.push_back({"out", "FILE", "It."});\n  return flags;\n}\n')
        self.write("torchps/server_main.cc", 'ABSL_FLAG(std::string, dir, "", "where");\n')
        self.write("README.md", "`psctl run --job=X`, `psctl look --out=F` --dir=D, `ps_server --dir`\n\n"
                                "psctl run --job=X \\\n  --out=F\nps_server --job=X | psctl look --dir=D\n")
        self.assertEqual(list(check_house.check_command_lines(self.paths)),
                         ["README.md:4: psctl run has no flag --out", "README.md:5: ps_server has no flag --job",
                          "README.md:5: psctl look has no flag --dir"])

    def test_checks_job_fields(self):
        self.write("high/b.cc", 'say("data.path, data.kind, hyperparameter.rate.x, data.csv, other.thing");\n'
                                'say("data.pth");\nint x = data.size();\n')
        self.write("README.md", "`data.source.name`; see data.md, data.load(x) and x/data.bin/y\n")
        self.assertEqual(self.fields(), ["high/b.cc:2: the job has no field data.pth",
                                         "README.md:1: the job has no field data.source.name"])


if __name__ == "__main__":
    unittest.main()

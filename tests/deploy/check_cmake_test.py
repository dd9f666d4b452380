"""Tests that deploy/check_cmake.py finds differences between two small builds."""

import os
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.abspath("deploy"))

import check_cmake  # noqa: E402
from check_cmake import Unit  # noqa: E402

BAZEL = [
    Unit("//torchps/a:a", ["torchps/a/x.cc", "torchps/a/y.cc"], [], False),
    Unit("//torchps/a:loop", ["torchps/a/loop.cc"], ["-O3"], False),
    Unit("//torchps/b:torch", ["torchps/b/z.cc"], [], True),
]
CMAKE = [
    Unit("torchps_base", ["torchps/a/x.cc", "torchps/a/y.cc"], ["c++", "-O2"], False),
    Unit("torchps_base", ["torchps/a/loop.cc"], ["c++", "-O2", "-O3"], False),
    Unit("torchps_torch", ["torchps/b/z.cc"], ["c++", "-O2"], True),
]


class CheckCmakeTest(unittest.TestCase):

    def finds(self, cmake, *sentences):
        self.assertEqual(list(check_cmake.compare(BAZEL, cmake, {"//torchps/a:a"})), list(sentences))

    def test_accepts_equal_builds(self):
        self.finds(CMAKE)

    def test_accepts_sources_that_are_compiled_alone(self):
        self.finds([CMAKE[0]._replace(sources=["torchps/a/x.cc"]), CMAKE[0]._replace(sources=["torchps/a/y.cc"]),
                    *CMAKE[1:]])

    def test_finds_a_forgotten_source(self):
        self.finds(CMAKE[:2], "torchps/b/z.cc is in //torchps/b:torch, but CMake does not compile it")

    def test_finds_an_extra_source(self):
        self.finds([*CMAKE, Unit("torchps_base", ["torchps/c.cc"], [], False)],
                   "CMake compiles torchps/c.cc, but no program or library of Bazel contains it")

    def test_finds_a_missing_option(self):
        self.finds([CMAKE[0], CMAKE[1]._replace(options=["c++", "-O2"]), CMAKE[2]],
                   "CMake compiles torchps/a/loop.cc without -O3")

    def test_finds_libtorch_in_the_wrong_library(self):
        self.finds([CMAKE[0]._replace(owner="torchps_torch", with_libtorch=True), CMAKE[1],
                    CMAKE[2]._replace(owner="torchps_base", with_libtorch=False)],
                   "torchps/a/x.cc is in a program without libtorch, but CMake has it in torchps_torch",
                   "torchps/a/y.cc is in a program without libtorch, but CMake has it in torchps_torch",
                   "torchps/b/z.cc sees libtorch, but CMake has it in torchps_base, not in torchps_torch")

    def test_finds_sources_of_two_units_in_one(self):
        self.finds([CMAKE[0]._replace(sources=["torchps/a/x.cc", "torchps/a/y.cc", "torchps/b/z.cc"],
                                      with_libtorch=True), CMAKE[1]],
                   "torchps/a/x.cc is in a program without libtorch, but CMake has it in torchps_base",
                   "CMake compiles torchps/a/x.cc and torchps/b/z.cc as one unit, Bazel does not; list them as `alone`",
                   "torchps/a/y.cc is in a program without libtorch, but CMake has it in torchps_base",
                   "CMake compiles torchps/a/y.cc and torchps/b/z.cc as one unit, Bazel does not; list them as `alone`",
                   "CMake compiles torchps/b/z.cc and torchps/a/x.cc as one unit, Bazel does not; list them as `alone`")

    def test_reads_the_units_of_a_bazel_query(self):
        rules = {rule.get("name"): rule for rule in xml.etree.ElementTree.fromstring("""<query>
          <rule class="_all_sources" name="//torchps/a:a_sources"><list name="srcs">
            <label value="//torchps/a:x.cc"/><label value="//torchps/a:y.cc"/></list></rule>
          <rule class="cc_library" name="//torchps/a:a">
            <list name="srcs"><label value="//torchps/a:a_sources"/><label value="//torchps/a:x.h"/></list>
            <list name="copts"><string value="-O3"/></list><list name="tags"><string value="libtorch"/></list>
            <rule-input name="//torchps/a:a_sources"/></rule></query>""").iter("rule")}
        self.assertEqual(check_cmake.bazel_units(rules),
                         [Unit("//torchps/a:a", ["torchps/a/x.cc", "torchps/a/y.cc"], ["-O3"], True)])
        self.assertEqual(check_cmake.reached(rules, ["//torchps/a:a"]), set(rules))


if __name__ == "__main__":
    unittest.main()

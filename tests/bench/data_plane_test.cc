// Tests the benchmark driver: rows are complete and the counts are consistent. Does not measure
// speed.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/program.h"

namespace torchps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Runs the benchmark with `flags`. Returns its rows, one for each repetition of each case.
std::vector<Json> Rows(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "bench/data_plane/data_plane");
  flags.push_back("--ps_server=torchps/ps_server");
  flags.push_back("--seconds=0.01");
  Program program(flags);
  EXPECT_EQ(program.AwaitExit(), 0);
  std::vector<Json> rows;
  for (const std::string& line : program.out()) rows.push_back(Json::parse(line));
  return rows;
}

std::vector<std::string> GetCases(const std::vector<Json>& rows) {
  std::vector<std::string> cases;
  for (const Json& row : rows) cases.push_back(row["case"]);
  return cases;
}

TEST(DataPlaneTest, TlsUsesGeneratedCertificates) {
  const auto rows = Rows({"--case=push_pull", "--transport=tls", "--repetitions=1", "--size=4096"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["transport"], "tls");
  EXPECT_GT(rows[0]["gbps"], 0);
}

TEST(DataPlaneTest, RepetitionsAlternateBetweenTheCases) {
  const auto rows = Rows({"--case=push_apply,pull", "--repetitions=2", "--size=4096"});
  EXPECT_EQ(GetCases(rows), (std::vector<std::string>{"push_apply", "pull", "push_apply", "pull"}));
}

TEST(DataPlaneTest, ARowDescribesTheCaseAndItsThroughput) {
  const auto rows = Rows({"--case=push_pull", "--repetitions=1", "--size=64KiB", "--workers=2",
                          "--servers=2", "--least=4"});
  ASSERT_EQ(rows.size(), 1u);
  const Json& row = rows.front();
  EXPECT_EQ(row["size"], 65536);
  EXPECT_EQ(row["workers"], 2);
  EXPECT_EQ(row["servers"], 2);
  EXPECT_EQ(row["transport"], "tcp");
  EXPECT_EQ(row["encoding"], "float32");
  EXPECT_GE(row["operations"], 8) << "each of two workers has at least four";
  // Each operation pushes and pulls the model once, so it counts the float32 bytes twice.
  EXPECT_NEAR(row["gbps"].get<double>(), row["calls_per_s"].get<double>() * 2 * 65536 / 1e9,
              1e-3 * row["gbps"].get<double>());
  EXPECT_GT(row["cpu_s_per_gb"], 0);
  EXPECT_GT(row["p50_us"], 0);
  EXPECT_GE(row["p99_us"], row["p50_us"]);
  EXPECT_GT(row["rss_mb"], 1);
  EXPECT_GT(row["fairness"], 0);
  EXPECT_LE(row["fairness"], 1);
}

TEST(DataPlaneTest, BaselinesRunWithoutAServer) {
  for (const std::string name : {"raw_tcp", "memcpy", "in_process_apply"}) {
    const auto rows = Rows({"--case=" + name, "--repetitions=1", "--size=4096"});
    ASSERT_EQ(rows.size(), 1u) << name;
    EXPECT_GT(rows.front()["gbps"], 0) << name;
  }
}

TEST(DataPlaneTest, RejectsAnUnknownOptimizer) {
  Program program({"bench/data_plane/data_plane", "--case=in_process_apply", "--size=4096",
                   "--optimizer=gradient descent"});
  EXPECT_EQ(program.AwaitExit(), 1);
  EXPECT_THAT(program.error(), Contains(HasSubstr("--optimizer is not an OptimizerSpec")));
}

TEST(DataPlaneTest, RejectsAnUnknownCaseAndListsKnownCases) {
  Program program({"bench/data_plane/data_plane", "--case=teleport"});
  EXPECT_EQ(program.AwaitExit(), 1);
  EXPECT_THAT(program.error(), Contains(HasSubstr("unknown case 'teleport'; expected memcpy")));
}

}  // namespace
}  // namespace torchps

// Runs psctl with the real programs. Killed processes restart, and the job completes as usual.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/program.h"

namespace torchps {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(4);

// On any machine this job still runs when the last fault of a drill occurs: 60 epochs take 4.5 s on
// the fastest machine so far. It needs no data files.
constexpr char kJob[] = R"(
  name: "supervised"
  workers: 2
  model { name: "linear" }
  data { source: "digits" train_samples: 2000 test_samples: 100 }
  training { epochs: 60 batch_size: 10 }
  optimizer { sgd {} learning_rate: 0.05 }
  membership { lease_seconds: 1 }
  durability { checkpoint_seconds: 1 }
)";

// Frozen processes make no steps, so fewer epochs are enough.
constexpr char kShort[] = "--set=training.epochs=15";

std::vector<std::string> Psctl(const std::string& command, std::vector<std::string> more) {
  const std::string folder = std::getenv("TEST_TMPDIR");
  std::ofstream(folder + "/job.textproto") << kJob;
  std::vector<std::string> words = {"torchps/psctl",
                                    command,
                                    "--job=" + folder + "/job.textproto",
                                    "--server_binary=torchps/ps_server",
                                    "--worker_binary=torchps/ps_worker",
                                    "--servers=2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Runs a drill, expects that the job survives it with each sample used, and returns the output.
std::string ExpectSurvived(std::vector<std::string> faults) {
  faults.insert(faults.end(), {"--seconds=10", "--seed=3"});
  Program drill(Psctl("drill", faults));
  EXPECT_EQ(drill.AwaitExit(kPatience), 0) << absl::StrJoin(drill.error(), "\n");
  const std::string out = absl::StrJoin(drill.out(), "\n");
  std::printf("%s\n", out.c_str());
  EXPECT_THAT(out, HasSubstr("supervised finished: test accuracy"));
  EXPECT_THAT(out, HasSubstr("\nconsistency check passed: "));
  EXPECT_THAT(
      out, HasSubstr("\nverdict: consistency check passed; samples lost 0, doubled 0; longest "));
  return out;
}

TEST(Supervision, SurvivesKilledServersAndWorkers) {
  const std::string out = ExpectSurvived(
      {"--kill=server.0:at=500ms", "--kill=server.1:at=1500ms", "--kill=worker:at=1s"});
  EXPECT_THAT(out, HasSubstr("restarted after a crash: 2 servers, 1 worker\n"));
  EXPECT_THAT(out, HasSubstr("\nkilled: 2 servers, 1 worker; frozen: 0 servers, 0 workers\n"));
  EXPECT_THAT(out, HasSubstr("from death to the first applied push: "));
  EXPECT_THAT(out, HasSubstr("\n--kill: 3 times, longest stall of other workers: "));
  EXPECT_FALSE(absl::StrContains(out, "never"));
}

// Simulates a suspended machine: the worker is frozen for longer than its lease. One server is also
// frozen, so that the job does not end before the worker resumes.
TEST(Supervision, ResumesAWorkerSuspendedBeyondItsLease) {
  const std::string out = ExpectSurvived(
      {kShort, "--freeze=server.1:at=500ms:for=4s", "--freeze=worker.1:at=300ms:for=3s"});
  EXPECT_THAT(out, HasSubstr("\nworker 1 resumes\n"));
  EXPECT_THAT(out, HasSubstr("\nserver 1 resumes\n"));
  EXPECT_THAT(out, HasSubstr("frozen: 1 server, 1 worker\n"));
}

// Simulates a laptop that is suspended with the whole job.
TEST(Supervision, ResumesAJobSuspendedAsAWhole) {
  const std::string out = ExpectSurvived(
      {kShort, "--freeze=server.0:at=500ms:for=3s", "--freeze=server.1:at=500ms:for=3s",
       "--freeze=worker.0:at=500ms:for=3s", "--freeze=worker.1:at=500ms:for=3s"});
  EXPECT_THAT(out, HasSubstr("frozen: 2 servers, 2 workers\n"));
}

TEST(Supervision, SurvivesABrokenNetworkAndASlowDisk) {
  const std::string out = ExpectSurvived(
      {kShort, "--partition=worker.1-server.1:at=300ms:for=4s", "--partition=server.0:at=1s:for=1s",
       "--partition=halves:at=3s:for=500ms", "--reset=worker:every=400ms",
       "--half_open=server.0:at=200ms:for=2s", "--slow_disk=server.1:20:20ms"});
  EXPECT_THAT(out, HasSubstr("workers reach the servers through relays"));
  EXPECT_THAT(out, HasSubstr("the disk of server 1 is slow: 20:20ms\n"));
  EXPECT_THAT(out, HasSubstr("\nnetwork cut between worker 1 and server 1\n"));
  EXPECT_THAT(out, HasSubstr("\nnetwork restored between worker 1 and server 1\n"));
  EXPECT_THAT(out, HasSubstr("\n600 half-open connections to server 0\n"));
  EXPECT_THAT(out, HasSubstr("\n--partition: 3 times, "));
}

// Server 1 is silent for longer than a client waits before it suspects that a server is none.
TEST(Supervision, SurvivesWorkersThatStartInsideAFault) {
  const std::string out = ExpectSurvived(
      {"--partition=worker.0-server.0:at=300ms:for=1500ms", "--kill=worker.0:at=400ms",
       "--freeze=server.1:at=2s:for=12s", "--kill=worker.1:at=2200ms"});
  EXPECT_THAT(out, HasSubstr("\nkilled: 0 servers, 2 workers; frozen: 1 server, 0 workers\n"));
}

TEST(Supervision, RecoversAcknowledgedPushesAfterEachDiskIsLost) {
  const std::string out = ExpectSurvived(
      {kShort, "--set=durability.level=LOG", "--set=durability.copies=1",
       "--lose_disk=server.1:at=300ms", "--lose_disk=server.0:at=600ms", "--kill=worker:at=1s"});
  EXPECT_THAT(out, HasSubstr("\nserver 1 loses its disk\n"));
  EXPECT_THAT(out, HasSubstr("\nserver 0 loses its disk\n"));
  EXPECT_THAT(out, HasSubstr("\ndisks lost: 2\n"));
  EXPECT_THAT(out, HasSubstr("; no acknowledged gradient is missing; further pushes were not"));
  EXPECT_THAT(out, EndsWith("; acknowledged pushes lost 0"));
  EXPECT_THAT(out, HasSubstr("/disk-0/model.safetensors"));
}

TEST(Supervision, ResumesAnInterruptedRun) {
  const std::string dir = absl::StrCat(std::getenv("TEST_TMPDIR"), "/state");
  {
    Program run(Psctl("run", {kShort, "--dir=" + dir}));
    ASSERT_NE(run.AwaitLine("epoch 1/15   test accuracy"), "") << absl::StrJoin(run.error(), "\n");
    run.AskToStop();
    EXPECT_EQ(run.AwaitExit(kPatience), 1);
    const std::string error = absl::StrJoin(run.error(), "\n");
    EXPECT_THAT(error, HasSubstr("interrupted; everything has been stopped"));
    EXPECT_THAT(error,
                HasSubstr(absl::StrCat("to resume: psctl run --dir=", dir, " --resume --job=", dir,
                                       "/job.textproto --servers=")));
  }
  Program refused(Psctl("run", {kShort, "--dir=" + dir}));
  EXPECT_EQ(refused.AwaitExit(kPatience), 2);
  EXPECT_THAT(refused.error().back(), HasSubstr("--resume continues that job"));

  // A resume with another seed is refused, and leaves the job file and the report unchanged.
  const auto kept = [&dir](const std::string& name) {
    std::ifstream file(dir + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string job = kept("job.textproto");
  const std::string report = kept("report.json");
  Program other(Psctl("run", {kShort, "--dir=" + dir, "--resume", "--set=seed=7"}));
  EXPECT_EQ(other.AwaitExit(kPatience), 4);
  EXPECT_EQ(kept("job.textproto"), job);
  EXPECT_EQ(kept("report.json"), report);

  Program resumed(Psctl("run", {kShort, "--dir=" + dir, "--resume"}));
  EXPECT_EQ(resumed.AwaitExit(kPatience), 0) << absl::StrJoin(resumed.error(), "\n");
  const std::string out = absl::StrJoin(resumed.out(), "\n");
  EXPECT_THAT(out, HasSubstr("supervised finished: test accuracy"));
  EXPECT_FALSE(absl::StrContains(out, "check FAILED")) << out;
}

}  // namespace
}  // namespace torchps

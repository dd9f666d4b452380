// Runs psctl with the real programs and a model split over two processes per worker. If one process
// is killed, the other processes of that worker exit, all of them restart, and the job completes.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/program.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Minutes(4);

// On any machine this job still runs when the last fault occurs. It needs no data files.
constexpr char kJob[] = R"(
  name: "staged"
  workers: 2
  model { name: "mlp" hidden: 32 }
  data { source: "digits" train_samples: 2000 test_samples: 100 }
  training { epochs: 20 batch_size: 20 }
  optimizer { sgd {} learning_rate: 0.05 }
  membership { lease_seconds: 1 }
  durability { checkpoint_seconds: 1 }
)";

std::string Folder() { return std::getenv("TEST_TMPDIR"); }

// Runs a drill, expects that the job survives it with each sample used, and returns the output.
std::string ExpectSurvived(const std::vector<std::string>& more) {
  std::ofstream(Folder() + "/job.textproto") << kJob;
  std::vector<std::string> words = {"torchps/psctl",
                                    "drill",
                                    absl::StrCat("--job=", Folder(), "/job.textproto"),
                                    "--server_binary=torchps/ps_server",
                                    "--worker_binary=torchps/ps_worker",
                                    "--servers=2",
                                    "--stages=2",
                                    "--seconds=10",
                                    "--seed=3"};
  words.insert(words.end(), more.begin(), more.end());
  Program drill(words);
  EXPECT_EQ(drill.AwaitExit(kPatience), 0) << absl::StrJoin(drill.error(), "\n");
  std::string out = absl::StrJoin(drill.out(), "\n");
  std::printf("%s\n", out.c_str());
  EXPECT_THAT(out, HasSubstr("staged finished: test accuracy"));
  EXPECT_THAT(out, HasSubstr("\nconsistency check passed: "));
  EXPECT_THAT(out, HasSubstr("\nverdict: consistency check passed; samples lost 0, doubled 0; "));
  EXPECT_THAT(out, HasSubstr("; acknowledged pushes lost 0"))
      << "no server died, so no push may be lost";
  return out;
}

TEST(StagesProcess, RestartsTheReplicaOfAKilledProcess) {
  const std::string out =
      ExpectSurvived({"--kill=worker.0.1:at=300ms", "--kill=worker.1.0:at=900ms"});
  EXPECT_THAT(
      out,
      HasSubstr("\nworker 0 stage 1 was ended by signal 9 (Killed); restarting it (restart 1)\n"));
  EXPECT_THAT(
      out,
      HasSubstr("\nworker 1 stage 0 was ended by signal 9 (Killed); restarting it (restart 1)\n"));
  // The other members of the replicas.
  EXPECT_THAT(out, HasSubstr("\nworker 0 stage 0 exited with code 3 "));
  EXPECT_THAT(out, HasSubstr("\nworker 1 stage 1 exited with code 3 "));
  EXPECT_THAT(out, HasSubstr("\nrestarted after a crash: 2 workers\n"))
      << "each replica restarts once";
  EXPECT_THAT(out, HasSubstr("\nkilled: 0 servers, 2 workers; frozen: 0 servers, 0 workers\n"
                             "killed processes of workers: 1 of stage 0, 1 of stage 1\n"));
}

// If certificates are given, activations and gradients pass between the processes over TLS.
TEST(StagesProcess, RestartsTheReplicaOfAKilledProcessOverTls) {
  const std::string certs = Folder() + "/certs";
  Program made(
      {"torchps/psctl", "certs", "--dir=" + certs, "--job=staged", "--hosts=127.0.0.1"});
  ASSERT_EQ(made.AwaitExit(), 0) << absl::StrJoin(made.error(), "\n");
  const std::string out = ExpectSurvived(
      {"--certs=" + certs, "--set=training.epochs=12", "--kill=worker.0.1:at=300ms"});
  EXPECT_THAT(out, HasSubstr("\nworker 0 stage 1 was ended by signal 9 (Killed); "));
  EXPECT_THAT(out, HasSubstr("\nrestarted after a crash: 1 worker\n"));
}

}  // namespace
}  // namespace torchps

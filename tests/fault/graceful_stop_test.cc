// Stops a cluster of processes, by SIGTERM or by a Shutdown call. Each process exits with 0 and all
// acknowledged steps are present after a restart.

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "tests/testing/eventually.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(60);
// The server's message about steps that it could not save.
constexpr char kLost[] = "the last steps are in no checkpoint";

class GracefulStopTest : public ::testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override {
    folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    addresses_.resize(NemesisJob::kServers);
  }

  void StartServers() {
    servers_.clear();
    for (std::string& address : addresses_) {
      std::vector<std::string> flags = {"--dir=" + folder_ + "/state"};
      if (!address.empty()) flags.push_back("--listen=" + address);
      servers_.push_back(StartServerProgram(flags));
      ASSERT_NE(servers_.back().address, "");
      address = servers_.back().address;
    }
  }
  void StartWorkers() {
    workers_.clear();
    for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
      workers_.push_back(std::make_unique<Program>(std::vector<std::string>{
          "tests/fault/nemesis/nemesis_worker", absl::StrJoin(addresses_, ","), absl::StrCat(slot),
          GetJournal(slot), "CHECKPOINT", "calm"}));
    }
  }
  void AwaitSteps(int64_t steps) {
    const std::vector<NemesisBook> before = Books();
    ASSERT_TRUE(Eventually(
        [&] {
          const std::vector<NemesisBook> accounting = Books();
          for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
            workers_[slot]->AwaitExit(absl::ZeroDuration());
            if (accounting[slot].steps < before[slot].steps + steps) return false;
          }
          return true;
        },
        kPatience))
        << absl::StrJoin(workers_[0]->error(), "\n");
  }
  void StopWorkers() {
    for (const auto& worker : workers_) worker->AskToStop();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->AwaitExit(kPatience), 0) << absl::StrJoin(worker->error(), "\n");
    }
  }
  static void StopServer(const ServerProgram& server) {
    if (GetParam()) {
      const auto stub = ParameterService::NewStub(PlainChannel(server.address));
      grpc::ClientContext context;
      ShutdownReply reply;
      EXPECT_TRUE(stub->Shutdown(&context, ShutdownRequest(), &reply).ok());
    } else {
      server.program->AskToStop();
    }
    EXPECT_EQ(server.program->AwaitExit(kPatience), 0) << Logged(server);
  }
  // Stops server 0 first, because it takes the last checkpoint for all servers.
  void StopServers() {
    for (const ServerProgram& server : servers_) StopServer(server);
  }
  static void KillServer(const ServerProgram& server) {
    kill(server.program->pid(), SIGKILL);
    server.program->AwaitExit(kPatience);
  }
  static std::string Logged(const ServerProgram& server) {
    return absl::StrJoin(server.program->error(), "\n");
  }

  std::string GetJournal(SlotId slot) { return absl::StrCat(folder_, "/journal.", slot); }
  std::vector<NemesisBook> Books() {
    static const NemesisJob job = NemesisJob::Create(DurabilitySpec::CHECKPOINT);
    std::vector<NemesisBook> accounting;
    for (SlotId slot = 0; slot < NemesisJob::kSlots; ++slot) {
      accounting.push_back(NemesisBook::Read(GetJournal(slot), job.map));
    }
    return accounting;
  }

  std::string folder_;
  std::vector<std::string> addresses_;
  std::vector<ServerProgram> servers_;
  std::vector<std::unique_ptr<Program>> workers_;
};

TEST_P(GracefulStopTest, ServersSaveAllStepsBeforeTheyStop) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  StartWorkers();
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(200));
  StopWorkers();
  StopServers();
  for (const ServerProgram& server : servers_) EXPECT_THAT(Logged(server), Not(HasSubstr(kLost)));

  ASSERT_NO_FATAL_FAILURE(StartServers());
  StartWorkers();
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(20));
  StopWorkers();
  for (const NemesisBook& book : Books()) {
    EXPECT_EQ(book.incarnations, 2);
    EXPECT_EQ(book.restored_lives, NemesisJob::kServers)
        << "the servers did not restore the checkpoint";
    EXPECT_EQ(book.rolled_back, 0);
    EXPECT_TRUE(book.broken_promises.empty()) << book.broken_promises[0];
  }
  StopServers();
}

TEST_P(GracefulStopTest, StoppingOneServerTakesACheckpointOfAllServers) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  StartWorkers();
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(200));
  StopWorkers();
  StopServer(servers_[1]);
  EXPECT_THAT(Logged(servers_[1]), Not(HasSubstr(kLost)));
  // Kills server 0, so that it cannot take another checkpoint.
  KillServer(servers_[0]);

  ASSERT_NO_FATAL_FAILURE(StartServers());
  StartWorkers();
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(20));
  StopWorkers();
  for (const NemesisBook& book : Books()) {
    EXPECT_EQ(book.restored_lives, NemesisJob::kServers);
    EXPECT_EQ(book.rolled_back, 0);
    EXPECT_TRUE(book.broken_promises.empty()) << book.broken_promises[0];
  }
  StopServers();
}

TEST_P(GracefulStopTest, AStoppingServerReportsUnsavedStepsIfServer0IsDown) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  StartWorkers();
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(200));
  StopWorkers();
  KillServer(servers_[0]);
  StopServer(servers_[1]);
  EXPECT_THAT(Logged(servers_[1]), HasSubstr(kLost));
  EXPECT_THAT(Logged(servers_[1]),
              HasSubstr(" gradients of this server's blocks since checkpoint "));
  EXPECT_THAT(Logged(servers_[1]), HasSubstr("server 0 at " + servers_[0].address + ": "));
}

TEST_P(GracefulStopTest, WorkersThatPushDuringAStopContinueAfterTheRestart) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  StartWorkers();
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(200));
  StopServers();
  // The workers wait for the servers and continue after the restart.
  ASSERT_NO_FATAL_FAILURE(StartServers());
  ASSERT_NO_FATAL_FAILURE(AwaitSteps(50));
  StopWorkers();
  for (const NemesisBook& book : Books()) {
    EXPECT_EQ(book.incarnations, 1) << "a worker had to join again";
    EXPECT_TRUE(book.broken_promises.empty()) << book.broken_promises[0];
  }
  StopServers();
}

INSTANTIATE_TEST_SUITE_P(Ways, GracefulStopTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "ByAPeer" : "BySignal";
                         });

}  // namespace
}  // namespace torchps

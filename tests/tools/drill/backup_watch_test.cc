#include <gtest/gtest.h>

#include "tests/tools/testing.h"
#include "torchps/tools/drill/recovery_watch.h"

namespace torchps {
namespace {

constexpr absl::Duration kWatchPatience = absl::Seconds(1);

// Simulates two servers with progress that the test sets.
class BackupWatchTest : public testing::Test {
 protected:
  class Client final : public ClusterClient {
   public:
    explicit Client(BackupWatchTest* test) : test_(test) {}
    const std::vector<std::string>& addresses() const override { return addresses_; }
    absl::StatusOr<JobStatus> GetJobStatus(bool, absl::Duration) override { return JobStatus(); }
    absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration) override {
      ++test_->looks_;
      return test_->servers_[server];
    }
    absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration) override {
      return CheckpointStatus();
    }
    absl::Status Shutdown(int, absl::string_view, absl::Duration) override {
      return absl::OkStatus();
    }

   private:
    const std::vector<std::string> addresses_;
    BackupWatchTest* const test_;
  };

  BackupWatch Watch(bool has_log) {
    BackupWatch watch(2, has_log,
                      [this](std::vector<std::string>) { return std::make_unique<Client>(this); });
    for (const int server : {0, 1}) watch.OnReturn(server, "127.0.0.1:1");
    return watch;
  }
  void Acknowledge(int server, uint64_t blocks) {
    ServerStatus status;
    status.mutable_verdicts()->set_acknowledged(blocks);
    servers_[server] = status;
  }

  absl::StatusOr<ServerStatus> servers_[2] = {ServerStatus(), ServerStatus()};
  int looks_ = 0;
};

TEST_F(BackupWatchTest, AsksNoServerBeforeADiskLoss) {
  BackupWatch watch = Watch(/*has_log=*/true);
  EXPECT_TRUE(watch.AreWhole(kWatchPatience));
  watch.OnDeath(1);
  EXPECT_TRUE(watch.AreWhole(kWatchPatience)) << "the server returns with its files";
  EXPECT_EQ(looks_, 0);
}

TEST_F(BackupWatchTest, AfterDiskLossWaitsForEachServersAcknowledgement) {
  BackupWatch watch = Watch(/*has_log=*/true);
  Acknowledge(0, 10);
  watch.OnLoss(1);
  EXPECT_FALSE(watch.AreWhole(kWatchPatience));
  EXPECT_EQ(looks_, 0) << "one server has not returned";
  watch.OnReturn(1, "127.0.0.1:2");
  EXPECT_FALSE(watch.AreWhole(kWatchPatience));
  Acknowledge(1, 3);
  EXPECT_FALSE(watch.AreWhole(kWatchPatience))
      << "server 0 may not know yet that its copies are lost";
  Acknowledge(0, 11);
  EXPECT_TRUE(watch.AreWhole(kWatchPatience));
  looks_ = 0;
  EXPECT_TRUE(watch.AreWhole(kWatchPatience));
  EXPECT_EQ(looks_, 0);
}

TEST_F(BackupWatchTest, AServersDeathDiscardsItsEarlierAcknowledgements) {
  BackupWatch watch = Watch(/*has_log=*/true);
  Acknowledge(0, 10);
  watch.OnLoss(1);
  watch.OnReturn(1, "127.0.0.1:2");
  EXPECT_FALSE(watch.AreWhole(kWatchPatience));
  watch.OnDeath(0);
  watch.OnReturn(0, "127.0.0.1:1");
  Acknowledge(0, 1);
  Acknowledge(1, 1);
  EXPECT_FALSE(watch.AreWhole(kWatchPatience));
  Acknowledge(0, 2);
  Acknowledge(1, 2);
  EXPECT_TRUE(watch.AreWhole(kWatchPatience));
}

TEST_F(BackupWatchTest, WaitsForSilentAndRestoringServers) {
  BackupWatch watch = Watch(/*has_log=*/true);
  watch.OnLoss(1);
  watch.OnReturn(1, "127.0.0.1:2");
  servers_[1] = absl::UnavailableError("not there");
  EXPECT_FALSE(watch.AreWhole(kWatchPatience));
  ServerStatus fetching;
  fetching.mutable_restoring();
  servers_[1] = fetching;
  EXPECT_FALSE(watch.AreWhole(kWatchPatience));
  for (uint64_t blocks : {5, 6}) {
    Acknowledge(0, blocks);
    Acknowledge(1, blocks);
    EXPECT_EQ(watch.AreWhole(kWatchPatience), blocks == 6);
  }
}

TEST_F(BackupWatchTest, WithoutALogWaitsForACompleteCheckpoint) {
  BackupWatch watch = Watch(/*has_log=*/false);
  watch.OnLoss(0);
  watch.OnReturn(0, "127.0.0.1:2");
  for (const uint64_t checkpoint : {7, 7, 8}) {
    for (auto& server : servers_) {
      ServerStatus status;
      status.mutable_verdicts()->set_acknowledged(100 * static_cast<uint64_t>(++looks_));
      status.mutable_durability()->set_checkpoint(checkpoint);
      server = status;
    }
    EXPECT_EQ(watch.AreWhole(kWatchPatience), checkpoint == 8);
  }
}

}  // namespace
}  // namespace torchps

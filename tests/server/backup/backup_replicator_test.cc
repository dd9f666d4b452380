// Tests the thread that sends a server's files to a peer that disconnects and reconnects.

#include "torchps/server/backup/backup_replicator.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/backup/keeper_peer.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr char kCheckpointFile[] = "checkpoint-000000000001/server-1-of-2.safetensors";
constexpr char kLogFile[] = "log-1-of-2/1.log";

class GrowingFakeLog final : public CopiedLog {
 public:
  GrowingLog GetExtent() const override {
    MutexLock lock(&mutex_);
    return extent_;
  }
  void RaiseCopied(uint64_t position) override { copied = position; }

  // Replaces the log by one segment of `bytes` bytes, and raises the position by one.
  void Grow(const std::string& segment, int64_t bytes) {
    MutexLock lock(&mutex_);
    ++extent_.position;
    extent_.files = {{segment, bytes}};
  }

  std::atomic<uint64_t> copied{0};  // the last argument of RaiseCopied()

 private:
  mutable Mutex mutex_;
  GrowingLog extent_ ABSL_GUARDED_BY(mutex_);
};

class BackupReplicatorTest : public ::testing::Test {
 protected:
  BackupReplicatorTest() {
    for (const char* folder : {"checkpoint-000000000001", "log-1-of-2"}) {
      EXPECT_TRUE(files_.CreateDirectories(absl::StrCat("/ps/", folder)).ok());
    }
  }

  void Begin(const BackupReplicator::Kept& kept = {}) {
    BackupReplicator::Options options;
    options.mirror.files = &files_;
    options.mirror.peer = &peer_;
    options.mirror.directory = "/ps";
    options.mirror.job_id = 77;
    options.mirror.server_index = 1;
    options.mirror.log = &log_;
    options.clock = &clock_;
    options.tell = [this](const std::string& line) {
      MutexLock lock(&mutex_);
      said_.push_back(line);
    };
    sender_ = std::make_unique<BackupReplicator>(std::move(options), kept);
  }

  void Write(const std::string& file, const std::string& contents) {
    ASSERT_TRUE(WriteFileAtomically(files_, absl::StrCat("/ps/", file), contents).ok());
  }
  void Grow(const std::string& contents) {
    Write(kLogFile, contents);
    log_.Grow(kLogFile, static_cast<int64_t>(contents.size()));
    sender_->Wake();
  }
  std::string Trouble() {
    DurabilityStatus status;
    sender_->Describe(&status);
    return status.trouble();
  }
  size_t said() {
    MutexLock lock(&mutex_);
    return said_.size();
  }
  // Advances the clock until `condition` is true. Returns false after a real timeout.
  bool AsTimeGoes(absl::FunctionRef<bool()> condition) {
    return Eventually([&] {
      clock_.Advance(absl::Milliseconds(100));
      return condition();
    });
  }

  FaultyFileSystem files_;
  KeeperPeer peer_;
  ManualClock clock_;
  GrowingFakeLog log_;
  Mutex mutex_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<BackupReplicator> sender_;
};

TEST_F(BackupReplicatorTest, ReportsTheCopiedLogPosition) {
  Begin();
  std::string log(100, 'x');
  for (uint64_t position = 1; position <= 5; ++position) {
    log += "record";
    Grow(log);
    ASSERT_TRUE(Eventually([&] { return log_.copied >= position; }));
    EXPECT_EQ(peer_.Contents(kLogFile), log);
  }
  DurabilityStatus status;
  EXPECT_TRUE(Eventually([&] {
    sender_->Describe(&status);
    return status.copied_bytes() == log.size() && status.uncopied_bytes() == 0;
  }));
  EXPECT_EQ(status.trouble(), "");
  EXPECT_EQ(said(), 0u);
}

TEST_F(BackupReplicatorTest, ReportsNoProgressWhileThePeerIsAway) {
  peer_.SetAway(true);
  Begin();
  Grow(std::string(100, 'x'));
  ASSERT_TRUE(Eventually([&] { return !Trouble().empty(); }));
  clock_.Advance(absl::Seconds(12));
  EXPECT_THAT(Trouble(), HasSubstr("server 0 at alpha:7000"));
  EXPECT_THAT(Trouble(), HasSubstr("for 12 s"));
  EXPECT_THAT(Trouble(), HasSubstr("pushes wait"));
  EXPECT_EQ(log_.copied, 0u);
  peer_.SetAway(false);
  ASSERT_TRUE(AsTimeGoes([&] { return log_.copied == 1; }));
  EXPECT_TRUE(Eventually([&] { return Trouble().empty(); }));
  EXPECT_TRUE(Eventually([&] { return said() == 2; }))
      << "at the start and at the end of the outage";
}

TEST_F(BackupReplicatorTest, KeepReturnsOnceTheFilesAreStoredAtThePeer) {
  Begin();
  Write(kCheckpointFile, "shard");
  EXPECT_EQ(sender_->Keep({kCheckpointFile}, /*complete=*/false, BackupMirror::Version::kNew),
            absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kCheckpointFile), "shard");
  Write(kCheckpointFile, "other");
  EXPECT_EQ(sender_->Keep({kCheckpointFile}, /*complete=*/false, BackupMirror::Version::kNew),
            absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kCheckpointFile), "other");
  const absl::Status gone =
      sender_->Keep({"none"}, /*complete=*/false, BackupMirror::Version::kNew);
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  sender_->KeepOnly({});
  EXPECT_TRUE(Eventually([&] { return peer_.Contents(kCheckpointFile) == "-"; }));
}

TEST_F(BackupReplicatorTest, KeepFailsAfterATimeoutIfThePeerStaysAway) {
  Write(kCheckpointFile, "shard");
  peer_.SetAway(true);
  Begin();
  absl::Status kept;
  std::atomic<bool> returned{false};
  std::thread keeper([&] {
    kept = sender_->Keep({kCheckpointFile}, /*complete=*/false, BackupMirror::Version::kNew);
    returned = true;
  });
  EXPECT_TRUE(AsTimeGoes([&] { return returned.load(); }));
  keeper.join();
  EXPECT_TRUE(absl::IsUnavailable(kept)) << kept;
  EXPECT_THAT(std::string(kept.message()), HasSubstr("server 0 at alpha:7000: nobody is there"));
}

TEST_F(BackupReplicatorTest, StopsWhileThePeerIsAway) {
  Write(kCheckpointFile, "shard");
  peer_.SetAway(true);
  Begin();
  Grow("x");
  absl::Status kept;
  std::thread keeper([&] {
    kept = sender_->Keep({kCheckpointFile}, /*complete=*/false, BackupMirror::Version::kNew);
  });
  EXPECT_TRUE(Eventually([&] { return !Trouble().empty(); }));
  sender_->Abandon();
  keeper.join();
  EXPECT_TRUE(absl::IsCancelled(kept)) << kept;
  sender_->Stop();
  peer_.SetAway(false);
  sender_ = nullptr;
  EXPECT_EQ(log_.copied, 0u);
}

TEST_F(BackupReplicatorTest, ContinuesAfterARestartWithoutResendingFiles) {
  Write(kCheckpointFile, "shard");
  Begin();
  Grow(std::string(200, 'x'));
  ASSERT_EQ(sender_->Keep({kCheckpointFile}, /*complete=*/true, BackupMirror::Version::kNew),
            absl::OkStatus());
  ASSERT_TRUE(Eventually([&] { return log_.copied == 1; }));
  sender_ = nullptr;
  const int64_t sent = peer_.stored_bytes();
  log_.copied = 0;
  peer_.Revive();
  Begin({{kCheckpointFile}, {}});
  ASSERT_TRUE(Eventually([&] { return log_.copied == 1; })) << "once the copy is confirmed";
  EXPECT_EQ(peer_.stored_bytes(), sent + 200) << "only the last piece of the log";
}

}  // namespace
}  // namespace torchps

// Tests BackupStore, which keeps another server's copies, on a faulty disk.

#include "torchps/server/backup/backup_store.h"

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Operation = FaultyFileSystem::Operation;
using Fault = FaultyFileSystem::Fault;

constexpr char kShard[] = "checkpoint-000000000001/server-1-of-2.safetensors";
constexpr char kSegment[] = "log-1-of-2/00000000000000000001.log";

class BackupStoreTest : public ::testing::Test {
 protected:
  BackupStoreTest() { Restart(); }

  // Restarts the store. Lists the copies, because a store accepts no piece before a list.
  void Restart() {
    keeper_ = std::make_unique<BackupStore>(&files_, "/ps");
    list_ = List();
  }
  void Crash(uint64_t seed) {
    files_.Crash(seed);
    Restart();
  }

  static CopiedFile GetFile(const std::string& name, uint64_t bytes = 0) {
    CopiedFile file;
    file.set_job_id(77);
    file.set_server_index(1);
    file.set_file(name);
    file.set_bytes(bytes);
    return file;
  }

  std::vector<std::string> List(uint64_t job_id = 77) {
    ListCopiesRequest request;
    request.set_job_id(job_id);
    request.set_server_index(1);
    const auto reply = keeper_->List(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    std::vector<std::string> names;
    if (!reply.ok()) return names;
    for (const CopiedFile& file : reply->file()) {
      names.push_back(absl::StrCat(file.file(), " ", file.bytes()));
    }
    return names;
  }

  absl::StatusOr<uint64_t> Store(const std::string& name, uint64_t bytes, uint64_t offset,
                                 const std::string& data) {
    StoreCopyRequest request;
    *request.mutable_file() = GetFile(name, bytes);
    request.set_offset(offset);
    request.set_data(data);
    const auto reply = keeper_->Store(request);
    if (!reply.ok()) return reply.status();
    return reply->bytes();
  }

  std::string Read(const std::string& name, uint64_t offset = 0, uint64_t most = 1 << 20) {
    ReadCopyRequest request;
    *request.mutable_file() = GetFile(name);
    request.set_offset(offset);
    request.set_max_bytes(most);
    const auto reply = keeper_->Read(request);
    return reply.ok() ? reply->data() : std::string(reply.status().message());
  }

  FaultyFileSystem files_;
  std::unique_ptr<BackupStore> keeper_;
  std::vector<std::string> list_;  // the copies after the last restart
};

TEST_F(BackupStoreTest, ListsAFileOnlyOnceItIsCompleteAndSynced) {
  EXPECT_EQ(*Store(kShard, 6, 0, "abc"), 3u);
  EXPECT_THAT(List(), IsEmpty());
  EXPECT_EQ(*Store(kShard, 6, 3, "def"), 6u);
  EXPECT_THAT(List(), ElementsAre(absl::StrCat(kShard, " 6")));
  Crash(1);
  EXPECT_THAT(list_, ElementsAre(absl::StrCat(kShard, " 6")));
  EXPECT_EQ(Read(kShard), "abcdef");
  EXPECT_EQ(Read(kShard, 2, 3), "cde");
  EXPECT_EQ(Read(kShard, 6), "");
}

TEST_F(BackupStoreTest, AcceptsRepeatedPiecesOfAFile) {
  ASSERT_TRUE(Store(kShard, 6, 0, "abc").ok());
  EXPECT_EQ(*Store(kShard, 6, 0, "abc"), 3u) << "the first piece starts the file";
  EXPECT_EQ(*Store(kShard, 6, 3, "de"), 5u);
  EXPECT_EQ(*Store(kShard, 6, 3, "de"), 5u);
  EXPECT_EQ(*Store(kShard, 6, 4, "ef"), 6u);
  EXPECT_EQ(*Store(kShard, 6, 4, "ef"), 6u) << "the file is complete";
  EXPECT_EQ(Read(kShard), "abcdef");
}

TEST_F(BackupStoreTest, ReplacesAFileAtomically) {
  ASSERT_TRUE(Store(kShard, 6, 0, "abcdef").ok());
  ASSERT_TRUE(Store(kShard, 6, 0, "ghi").ok());
  EXPECT_EQ(Read(kShard), "abcdef") << "half of another file changes nothing";
  // After a crash the store does not know which pieces it has received.
  Crash(1);
  EXPECT_TRUE(absl::IsOutOfRange(Store(kShard, 6, 3, "jkl").status()));
  EXPECT_EQ(Read(kShard), "abcdef");
  ASSERT_TRUE(Store(kShard, 6, 0, "ghi").ok());
  ASSERT_TRUE(Store(kShard, 6, 3, "jkl").ok());
  EXPECT_EQ(Read(kShard), "ghijkl");
}

TEST_F(BackupStoreTest, StoresASmallFileDuringALargeUpload) {
  ASSERT_TRUE(Store(kShard, 6, 0, "abc").ok());
  ASSERT_TRUE(Store("coordinator.state", 5, 0, "state").ok());
  EXPECT_EQ(*Store(kShard, 6, 3, "def"), 6u);
  EXPECT_EQ(Read(kShard), "abcdef");
  EXPECT_EQ(Read("coordinator.state"), "state");
}

TEST_F(BackupStoreTest, StoresAGrowingFilePieceByPiece) {
  EXPECT_EQ(*Store(kSegment, 0, 0, "abc"), 3u);
  Crash(1);
  EXPECT_THAT(list_, ElementsAre(absl::StrCat(kSegment, " 3")));
  EXPECT_EQ(*Store(kSegment, 0, 3, "def"), 6u);
  EXPECT_EQ(*Store(kSegment, 0, 3, "def"), 6u);
  EXPECT_EQ(*Store(kSegment, 0, 1, "bc"), 6u) << "an older piece once more";
  Crash(2);
  EXPECT_EQ(Read(kSegment), "abcdef");
}

TEST_F(BackupStoreTest, RejectsAPieceBeyondTheEnd) {
  ASSERT_TRUE(Store(kSegment, 0, 0, "abc").ok());
  const absl::Status behind = Store(kSegment, 0, 4, "e").status();
  EXPECT_TRUE(absl::IsOutOfRange(behind)) << behind;
  EXPECT_THAT(std::string(behind.message()), HasSubstr("ends at byte 3"));
  EXPECT_TRUE(absl::IsOutOfRange(Store("log-1-of-2/2.log", 0, 4, "e").status()));
  ASSERT_TRUE(Store(kShard, 9, 0, "abc").ok());
  EXPECT_TRUE(absl::IsOutOfRange(Store(kShard, 9, 4, "e").status()));
}

TEST_F(BackupStoreTest, RepairsATornPieceOnRetry) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    const std::string name = absl::StrCat("log-1-of-2/", seed, ".log");
    ASSERT_TRUE(Store(name, 0, 0, "head").ok());
    // The sync of the next piece fails.
    files_.SetFaultHook([](Operation operation, const std::string&) -> std::optional<Fault> {
      if (operation == Operation::kSync) return Fault{EIO, 0};
      return std::nullopt;
    });
    EXPECT_TRUE(absl::IsUnavailable(Store(name, 0, 4, "abcdefgh").status()));
    files_.SetFaultHook(nullptr);
    if (seed % 2 == 0) Crash(seed);
    // The piece may seem to be on the disk, but its sync failed. So the store writes it again.
    EXPECT_EQ(*Store(name, 0, 4, "abcdefgh"), 12u);
    Crash(seed);
    EXPECT_EQ(Read(name), "headabcdefgh");
  }
}

TEST_F(BackupStoreTest, RetriesSucceedAfterAnyDiskFault) {
  for (int64_t n = 1; n <= 12; ++n) {
    SCOPED_TRACE(n);
    const std::string shard = absl::StrCat("checkpoint-", n, "/server-1-of-2.safetensors");
    const std::string segment = absl::StrCat("log-", n, "-of-2/1.log");
    files_.FailNth(n, {ENOSPC, 1});
    for (int tries = 0; tries < 3 && !Store(segment, 0, 0, "abc").ok(); ++tries) {
    }
    files_.FailNth(n, {EIO, 1});
    for (int tries = 0; tries < 3; ++tries) {
      if (Store(shard, 6, 0, "abc").ok() && Store(shard, 6, 3, "def").ok()) break;
    }
    files_.FailNth(/*n=*/int64_t{1} << 40, {});
    Crash(static_cast<uint64_t>(n));
    EXPECT_EQ(Read(segment), "abc");
    EXPECT_EQ(Read(shard), "abcdef");
  }
}

TEST_F(BackupStoreTest, RejectsCallsForAJobThatWasNotListed) {
  keeper_ = std::make_unique<BackupStore>(&files_, "/ps");
  EXPECT_TRUE(absl::IsAborted(Store(kSegment, 0, 0, "abc").status()));
  DropCopiesRequest drop;
  *drop.add_file() = GetFile(kSegment);
  EXPECT_TRUE(absl::IsAborted(keeper_->Drop(drop).status()));
  List(/*job_id=*/78);
  EXPECT_TRUE(absl::IsAborted(Store(kSegment, 0, 0, "abc").status()));
  List();
  EXPECT_TRUE(Store(kSegment, 0, 0, "abc").ok());
}

TEST_F(BackupStoreTest, DropsCopiesAndTheirFolder) {
  ASSERT_TRUE(Store(kShard, 3, 0, "abc").ok());
  ASSERT_TRUE(Store(kSegment, 0, 0, "abc").ok());
  DropCopiesRequest request;
  *request.add_file() = GetFile(kShard);
  *request.add_file() = GetFile("checkpoint-000000000009/MANIFEST.json");
  ASSERT_TRUE(keeper_->Drop(request).ok());
  ASSERT_TRUE(keeper_->Drop(request).ok()) << "safe to repeat";
  Crash(1);
  EXPECT_THAT(list_, ElementsAre(absl::StrCat(kSegment, " 3")));
  EXPECT_THAT(*files_.List("/ps/copies-of-77-1"), ElementsAre("log-1-of-2"));
}

TEST_F(BackupStoreTest, RejectsFileNamesOutsideTheFolder) {
  for (const char* name :
       {"", ".", "..", "../x", "a/../b", "/etc/passwd", "a//b", "a/b/c", "a/.hidden", "a b", "x/",
        "server.tmp", "a\n", "\xff", "checkpoint-1/..", "a\\b"}) {
    const absl::Status refused = Store(name, 0, 0, "abc").status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << name << ": " << refused;
    DropCopiesRequest drop;
    *drop.add_file() = GetFile(name);
    EXPECT_TRUE(absl::IsInvalidArgument(keeper_->Drop(drop).status())) << name;
    ReadCopyRequest read;
    *read.mutable_file() = GetFile(name);
    EXPECT_TRUE(absl::IsInvalidArgument(keeper_->Read(read).status())) << name;
  }
  EXPECT_FALSE(CheckBackupName(std::string(201, 'a')).ok());
  EXPECT_TRUE(CheckBackupName(std::string(200, 'a')).ok());
}

TEST_F(BackupStoreTest, RejectsInvalidPieces) {
  EXPECT_TRUE(absl::IsInvalidArgument(Store(kShard, 6, 4, "def").status())) << "beyond the end";
  EXPECT_TRUE(absl::IsInvalidArgument(Store(kSegment, 0, 0, "").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Store(kSegment, 0, 0, std::string(kCopyPieceBytes + 1, 'x')).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Store(kSegment, 0, ~uint64_t{0}, "x").status()));
  EXPECT_THAT(Read("log-1-of-2/7.log"), HasSubstr("log-1-of-2/7.log")) << "there is none";
}

}  // namespace
}  // namespace torchps

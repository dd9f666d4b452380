// Tests the order in which BackupMirror sends files to the peer, and recovery from failed calls.

#include "torchps/server/backup/backup_mirror.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/backup/keeper_peer.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/hash.h"
#include "torchps/server/backup/backup_fetch.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using Wanted = BackupMirror::Version;

constexpr char kOwn[] = "/ps";
constexpr char kShardFile[] = "checkpoint-000000000001/server-1-of-2.safetensors";
constexpr char kManifest[] = "checkpoint-000000000001/MANIFEST.json";
constexpr char kNewShard[] = "checkpoint-000000000002/server-1-of-2.safetensors";

std::string SegmentFile(int number) { return absl::StrCat("log-1-of-2/", number, ".log"); }

// Returns incompressible bytes.
std::string Noise(size_t bytes, uint64_t seed) {
  std::string noise(bytes, '\0');
  for (char& byte : noise) byte = static_cast<char>(SplitMix64(seed));
  return noise;
}

struct FakeLog final : CopiedLog {
  GrowingLog extent;

  GrowingLog GetExtent() const override { return extent; }
  void RaiseCopied(uint64_t) override {}
};

class BackupMirrorTest : public ::testing::Test {
 protected:
  BackupMirrorTest() {
    for (const char* folder :
         {"checkpoint-000000000001", "checkpoint-000000000002", "log-1-of-2"}) {
      EXPECT_TRUE(files_.CreateDirectories(absl::StrCat(kOwn, "/", folder)).ok());
    }
    Begin();
  }

  // Restarts the sending server: a new mirror with the same files.
  void Begin() {
    BackupMirror::Options options;
    options.files = &files_;
    options.peer = &peer_;
    options.directory = kOwn;
    options.job_id = 77;
    options.server_index = 1;
    options.log = &log_;
    mirror_ = std::make_unique<BackupMirror>(options);
  }

  void Write(const std::string& file, const std::string& contents) {
    ASSERT_TRUE(WriteFileAtomically(files_, absl::StrCat(kOwn, "/", file), contents).ok());
  }
  // Writes a segment of the push log with new contents, and raises the log position by one.
  void Grow(int number, const std::string& contents) {
    Write(SegmentFile(number), contents);
    ++log_.extent.position;
    for (GrowingFile& file : log_.extent.files) {
      if (file.file != SegmentFile(number)) continue;
      file.bytes = static_cast<int64_t>(contents.size());
      return;
    }
    log_.extent.files.push_back({SegmentFile(number), static_cast<int64_t>(contents.size())});
  }

  // Steps until the mirror is idle. Returns the first error.
  absl::Status Run() {
    for (int steps = 0; steps < 1000; ++steps) {
      const absl::StatusOr<bool> stepped = mirror_->Step();
      if (!stepped.ok()) return stepped.status();
      if (!*stepped) return absl::OkStatus();
    }
    return absl::InternalError("it never comes to an end");
  }
  // Like Run(), but retries after errors.
  void RunThrough() {
    for (int tries = 0; tries < 100; ++tries) {
      if (Run().ok()) return;
    }
    FAIL() << "the retries never succeed";
  }

  FaultyFileSystem files_;
  KeeperPeer peer_;
  FakeLog log_;
  std::unique_ptr<BackupMirror> mirror_;
};

TEST_F(BackupMirrorTest, SendsCheckpointsThenTheLogThenUnfinishedShards) {
  Write(kShardFile, "shard");
  Write(kManifest, "manifest");
  Write(kNewShard, "new shard");
  Grow(1, Noise(100, 1));
  mirror_->Want(kNewShard, /*complete=*/false, Wanted::kNew);
  mirror_->Want(kShardFile, /*complete=*/true, Wanted::kKept);
  mirror_->Want(kManifest, /*complete=*/true, Wanted::kKept);
  while (!mirror_->IsThere(kManifest)) {
    EXPECT_EQ(mirror_->position(), 0u) << "the log is useless without the checkpoint";
    ASSERT_TRUE(*mirror_->Step());
  }
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.order(),
            "server-1-of-2.safetensors MANIFEST.json 1.log server-1-of-2.safetensors");
  EXPECT_EQ(mirror_->position(), 1u);
  EXPECT_EQ(peer_.Contents(kShardFile), "shard");
  EXPECT_EQ(peer_.Contents(kManifest), "manifest");
  EXPECT_EQ(peer_.Contents(kNewShard), "new shard");
  EXPECT_EQ(peer_.Contents(SegmentFile(1)), Noise(100, 1));
  uint64_t copied = 0;
  uint64_t uncopied = 0;
  mirror_->CountBytes(&copied, &uncopied);
  EXPECT_EQ(copied, 122u);
  EXPECT_EQ(uncopied, 0u);
}

TEST_F(BackupMirrorTest, SendsTheLogBetweenPiecesOfAShard) {
  const std::string large = Noise(5 * kCopyPieceBytes + 3, 1);
  Write(kNewShard, large);
  Grow(1, Noise(100, 2));
  mirror_->Want(kNewShard, /*complete=*/false, Wanted::kNew);
  while (peer_.stored_bytes() < 2 * kCopyPieceBytes) ASSERT_TRUE(*mirror_->Step());
  Grow(1, Noise(200, 2));
  // The new part of the log must not wait for the rest of the shard.
  for (int steps = 0; steps < 5 && mirror_->position() < 2; ++steps) {
    ASSERT_TRUE(*mirror_->Step());
  }
  EXPECT_EQ(mirror_->position(), 2u);
  EXPECT_FALSE(mirror_->IsThere(kNewShard));
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kNewShard), large);
  EXPECT_LE(peer_.largest_piece(), kCopyPieceBytes);
}

TEST_F(BackupMirrorTest, AConstantlyChangingSmallFileDoesNotDelayLargeFiles) {
  const std::string large = Noise(6 * kCopyPieceBytes, 1);
  Write("coordinator.state", "0");
  mirror_->Want("coordinator.state", /*complete=*/false, Wanted::kNew);
  Write(kNewShard, large);
  mirror_->Want(kNewShard, /*complete=*/false, Wanted::kNew);
  Write(kShardFile, large);
  mirror_->Want(kShardFile, /*complete=*/false, Wanted::kNew);
  for (int steps = 1; steps < 20; ++steps) {
    ASSERT_TRUE(mirror_->Step().ok());
    Write("coordinator.state", absl::StrCat(steps));
    mirror_->Want("coordinator.state", /*complete=*/false, Wanted::kNew);
    ASSERT_TRUE(mirror_->Step().ok());
  }
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kNewShard), large);
  EXPECT_EQ(peer_.Contents(kShardFile), large);
  EXPECT_EQ(peer_.Contents("coordinator.state"), "19");
  EXPECT_LT(peer_.stored_bytes(), 12 * kCopyPieceBytes + 100) << "no piece was sent twice";
}

TEST_F(BackupMirrorTest, ResumesTheLogCopyAfterARestart) {
  const std::string log = Noise(6 * kCopyPieceBytes, 1);
  Write(kShardFile, "shard");
  Write(kManifest, "manifest");
  const auto want = [&] {
    mirror_->Want(kShardFile, /*complete=*/true, Wanted::kKept);
    mirror_->Want(kManifest, /*complete=*/true, Wanted::kKept);
  };
  want();
  Grow(1, log.substr(0, 4 * kCopyPieceBytes));
  ASSERT_EQ(Run(), absl::OkStatus());
  const int64_t before = peer_.stored_bytes();
  // The restarted mirror sends only the last piece again, because that piece may be incomplete at
  // the peer.
  Begin();
  want();
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.stored_bytes(), before + kCopyPieceBytes);
  EXPECT_EQ(mirror_->position(), 1u);
  peer_.Restart();
  Grow(1, log);
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.stored_bytes(), before + 3 * kCopyPieceBytes + kCopyPieceBytes)
      << "the refused piece and two more";
  EXPECT_EQ(peer_.Contents(SegmentFile(1)), log);
  EXPECT_EQ(mirror_->position(), 2u);
}

TEST_F(BackupMirrorTest, ResendsEverythingAfterThePeerLostItsDisk) {
  Write(kShardFile, "shard");
  Write(kManifest, "manifest");
  mirror_->Want(kShardFile, /*complete=*/true, Wanted::kKept);
  mirror_->Want(kManifest, /*complete=*/true, Wanted::kKept);
  Grow(1, Noise(100, 1));
  ASSERT_EQ(Run(), absl::OkStatus());
  peer_.LoseDisk();
  Grow(2, Noise(100, 2));
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(mirror_->position(), 2u);
  EXPECT_EQ(peer_.Contents(kShardFile), "shard");
  EXPECT_EQ(peer_.Contents(kManifest), "manifest");
  EXPECT_EQ(peer_.Contents(SegmentFile(1)), Noise(100, 1));
  EXPECT_EQ(peer_.Contents(SegmentFile(2)), Noise(100, 2));
}

TEST_F(BackupMirrorTest, ReplacesTheCopyOfALogThatStartsAgain) {
  Grow(1, Noise(2 * kCopyPieceBytes, 1));
  Grow(2, Noise(100, 2));
  ASSERT_EQ(Run(), absl::OkStatus());
  // The operator moved the log away. The new log starts again at segment 1, with other contents.
  log_.extent.files.clear();
  Grow(1, Noise(kCopyPieceBytes + 100, 3));
  Begin();
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.Contents(SegmentFile(1)), Noise(kCopyPieceBytes + 100, 3));
  EXPECT_EQ(peer_.Contents(SegmentFile(2)), "-");
  EXPECT_EQ(mirror_->position(), 3u);
}

TEST_F(BackupMirrorTest, DropsFilesThatAreNoLongerWanted) {
  Write(kShardFile, "shard");
  Write(kManifest, "manifest");
  Write(kNewShard, "new shard");
  for (const char* file : {kShardFile, kManifest, kNewShard}) {
    mirror_->Want(file, /*complete=*/true, Wanted::kKept);
  }
  Grow(1, Noise(100, 1));
  Grow(2, Noise(100, 2));
  ASSERT_EQ(Run(), absl::OkStatus());
  log_.extent.files.erase(log_.extent.files.begin());
  mirror_->WantOnly({kNewShard});
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kShardFile), "-");
  EXPECT_EQ(peer_.Contents(kManifest), "-");
  EXPECT_EQ(peer_.Contents(kNewShard), "new shard");
  EXPECT_EQ(peer_.Contents(SegmentFile(1)), "-");
  EXPECT_EQ(peer_.Contents(SegmentFile(2)), Noise(100, 2));
  // The peer is away while files are dropped. The mirror drops them at the peer once it is back.
  peer_.SetAway(true);
  log_.extent.files.clear();
  mirror_->WantOnly({});
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  peer_.SetAway(false);
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kNewShard), "-");
  EXPECT_EQ(peer_.Contents(SegmentFile(2)), "-");
}

TEST_F(BackupMirrorTest, ResendsAFileThatWasRewritten) {
  Write(kNewShard, "first");
  mirror_->Want(kNewShard, /*complete=*/false, Wanted::kNew);
  ASSERT_EQ(Run(), absl::OkStatus());
  Write(kNewShard, "other");
  mirror_->Want(kNewShard, /*complete=*/false, Wanted::kNew);
  EXPECT_FALSE(mirror_->IsThere(kNewShard));
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.Contents(kNewShard), "other");
  const int64_t sent = peer_.stored_bytes();
  mirror_->Want(kNewShard, /*complete=*/true, Wanted::kSame);
  EXPECT_TRUE(mirror_->IsThere(kNewShard));
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(peer_.stored_bytes(), sent);
  // kShardFile does not exist. The mirror gives up on a file that is deleted before it is sent.
  mirror_->Want(kShardFile, /*complete=*/false, Wanted::kNew);
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_FALSE(mirror_->Wants(kShardFile));
}

TEST_F(BackupMirrorTest, TheCopyIsCompleteWhicheverCallIsLost) {
  const std::string shard = Noise(2 * kCopyPieceBytes + 9, 1);
  const std::string log = Noise(2 * kCopyPieceBytes + 70, 2);
  for (const bool answer_only : {false, true}) {
    for (int n = 1; n <= 16; ++n) {
      SCOPED_TRACE(absl::StrCat("call ", n, answer_only ? ", its answer" : ""));
      peer_.LoseDisk();
      log_.extent = GrowingLog();
      Begin();
      Write(kShardFile, shard);
      Write(kManifest, "manifest");
      mirror_->Want(kShardFile, /*complete=*/true, Wanted::kKept);
      mirror_->Want(kManifest, /*complete=*/true, Wanted::kKept);
      Grow(1, log.substr(0, kCopyPieceBytes + 80));
      peer_.LoseCall(n, answer_only);
      RunThrough();
      Grow(1, log);
      Grow(2, Noise(90, 3));
      RunThrough();
      EXPECT_EQ(mirror_->position(), 3u);
      EXPECT_EQ(peer_.Contents(kShardFile), shard);
      EXPECT_EQ(peer_.Contents(kManifest), "manifest");
      EXPECT_EQ(peer_.Contents(SegmentFile(1)), log);
      EXPECT_EQ(peer_.Contents(SegmentFile(2)), Noise(90, 3));
    }
  }
}

TEST_F(BackupMirrorTest, ErrorNamesThePeer) {
  Grow(1, Noise(100, 1));
  peer_.SetAway(true);
  EXPECT_THAT(std::string(Run().message()), HasSubstr("server 0 at alpha:7000: nobody is there"));
  peer_.SetAway(false);
  ASSERT_EQ(Run(), absl::OkStatus());
}

// --- Fetching the copies back ---

class BackupFetchTest : public BackupMirrorTest {
 protected:
  BackupFetch Fetch(const std::string& directory, uint64_t job_id = 77,
                    bool with_coordinator = false) {
    BackupFetch::Options options;
    options.files = &files_;
    options.peer = &peer_;
    options.directory = directory;
    options.job_id = job_id;
    options.server_index = 1;
    options.with_coordinator = with_coordinator;
    options.begin = [this](const std::string& what, int64_t pieces) {
      what_ = what;
      pieces_ = pieces;
    };
    options.done = [this] { --pieces_; };
    return BackupFetch(options);
  }

  void ExpectSame(const std::string& directory, const std::string& file) {
    const auto own = ReadWholeFile(files_, absl::StrCat(kOwn, "/", file), 1 << 30);
    const auto back = ReadWholeFile(files_, absl::StrCat(directory, "/", file), 1 << 30);
    ASSERT_TRUE(own.ok() && back.ok()) << file << ": " << back.status();
    EXPECT_EQ(*own, *back) << file;
  }

  void CopySome() {
    Write(kShardFile, Noise(2 * kCopyPieceBytes + 9, 1));
    Write(kManifest, "manifest");
    mirror_->Want(kShardFile, /*complete=*/true, Wanted::kKept);
    mirror_->Want(kManifest, /*complete=*/true, Wanted::kKept);
    Grow(1, Noise(kCopyPieceBytes, 2));
    ASSERT_EQ(Run(), absl::OkStatus());
  }

  std::string what_;
  int64_t pieces_ = 0;
};

TEST_F(BackupFetchTest, FetchesExactlyTheCopiedFiles) {
  CopySome();
  const absl::StatusOr<int64_t> bytes = Fetch("/new").Run();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, 3 * kCopyPieceBytes + 9 + 8);
  EXPECT_EQ(what_, "fetches its files from server 0 at alpha:7000");
  EXPECT_EQ(pieces_, 0) << "every file is reported";
  files_.Crash(1);
  for (const std::string& file :
       {std::string(kShardFile), std::string(kManifest), SegmentFile(1)}) {
    ExpectSame("/new", file);
  }
  EXPECT_FALSE(Fetch("/new").WasBrokenOff());
  EXPECT_TRUE(Fetch("/other", /*job_id=*/0).Run().ok()) << "for any job";
  ExpectSame("/other", kShardFile);
}

TEST_F(BackupFetchTest, FetchesTheCoordinatorsFilesOnlyBeforeItRuns) {
  Write("coordinator.state", "old");
  mirror_->Want("coordinator.state", /*complete=*/true, Wanted::kKept);
  CopySome();
  for (const bool with_coordinator : {false, true}) {
    const std::string directory = absl::StrCat("/new", with_coordinator);
    BackupFetch fetch = Fetch(directory, /*job_id=*/77, with_coordinator);
    ASSERT_TRUE(fetch.Run().ok());
    EXPECT_EQ(pieces_, 0) << "every file is reported";
    ExpectSame(directory, kShardFile);
    EXPECT_EQ(files_.OpenForReading(directory + "/coordinator.state").ok(), with_coordinator);
  }
}

TEST_F(BackupFetchTest, FetchesNothingWithoutCopies) {
  const absl::StatusOr<int64_t> bytes = Fetch("/new").Run();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, 0);
  EXPECT_TRUE(absl::IsNotFound(files_.List("/new").status()));
}

TEST_F(BackupFetchTest, DetectsAnInterruptedFetchAndRestartsIt) {
  CopySome();
  peer_.LoseCall(4, /*answer_only=*/false);
  EXPECT_TRUE(absl::IsUnavailable(Fetch("/new").Run().status()));
  files_.Crash(3);
  EXPECT_TRUE(Fetch("/new").WasBrokenOff());
  ASSERT_TRUE(Fetch("/new").Run().ok());
  EXPECT_FALSE(Fetch("/new").WasBrokenOff());
  ExpectSame("/new", kShardFile);
}

TEST_F(BackupFetchTest, RefusesToFetchCopiesOfTwoJobs) {
  CopySome();
  ListCopiesRequest list;
  list.set_job_id(78);
  list.set_server_index(1);
  ASSERT_TRUE(peer_.List(list).ok());
  StoreCopyRequest store;
  store.mutable_file()->set_job_id(78);
  store.mutable_file()->set_server_index(1);
  store.mutable_file()->set_file("log-1-of-2/1.log");
  store.set_data("x");
  ASSERT_TRUE(peer_.Store(store).ok());
  const absl::Status refused = Fetch("/new", /*job_id=*/0).Run().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("jobs 77 and 78"));
  EXPECT_TRUE(Fetch("/new").Run().ok()) << "the requested job";
}

}  // namespace
}  // namespace torchps

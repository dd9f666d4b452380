#include "torchps/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/testing/faulty_file_system.h"
#include "tests/testing/sample_checkpoint.h"
#include "torchps/checkpoint/manifest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Status Any(const Manifest&) { return absl::OkStatus(); }

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  CheckpointDirectoryTest() : place_(&files_, "/d") {}

  void Write(uint64_t checkpoint, int servers = 2) {
    ASSERT_EQ(WriteCheckpoint(files_, "/d", checkpoint, servers, model_,
                              static_cast<int64_t>(checkpoint)),
              absl::OkStatus());
  }
  std::vector<std::string> Names(uint64_t checkpoint) {
    const auto names = files_.List(place_.CheckpointPath(checkpoint));
    return names.ok() ? *names : std::vector<std::string>{"(no directory)"};
  }
  void Truncate(const std::string& path, int64_t by) {
    auto file = files_.OpenForAppend(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Truncate((*file)->size() - by).ok());
  }

  const SampleModel model_;
  FaultyFileSystem files_;
  const CheckpointDirectory place_;
};

TEST_F(CheckpointDirectoryTest, FileNamesContainTheCheckpointAndServerNumbers) {
  EXPECT_EQ(place_.ServerLockPath(3), "/d/server-3.lock");
  EXPECT_EQ(place_.CoordinatorLockPath(), "/d/coordinator.lock");
  EXPECT_EQ(place_.CoordinatorStatePath(), "/d/coordinator.state");
  EXPECT_EQ(place_.ManifestPath(12), "/d/checkpoint-000000000012/MANIFEST.json");
  EXPECT_EQ(place_.ShardPath(12, 0, 2), "/d/checkpoint-000000000012/server-0-of-2.safetensors");
  EXPECT_EQ(place_.LogPath(0, 2), "/d/log-0-of-2");
}

TEST_F(CheckpointDirectoryTest, OnlyACheckpointWithAManifestIsComplete) {
  EXPECT_THAT(*place_.Complete(), IsEmpty());
  EXPECT_EQ(*place_.HighestNumber(), 0u);
  Write(1);
  Write(5);
  ASSERT_TRUE(place_.PrepareCheckpoint(7).ok());
  EXPECT_THAT(*place_.Complete(), ElementsAre(1, 5));
  EXPECT_EQ(*place_.HighestNumber(), 7u);
}

TEST_F(CheckpointDirectoryTest, IgnoresFilesAndFoldersWithOtherNames) {
  Write(1);
  for (const char* const name :
       {"/d/checkpoint-2", "/d/checkpoint-00000000000x", "/d/checkpoint-000000000000",
        "/d/Checkpoint-000000000003", "/d/lost+found"}) {
    ASSERT_TRUE(files_.CreateDirectories(name).ok());
    ASSERT_TRUE(WriteFileAtomically(files_, std::string(name) + "/MANIFEST.json", "x").ok());
  }
  ASSERT_TRUE(WriteFileAtomically(files_, "/d/notes.txt", "mine").ok());
  EXPECT_THAT(*place_.Complete(), ElementsAre(1));
}

TEST_F(CheckpointDirectoryTest, RefusesToRewriteACompleteCheckpoint) {
  Write(1);
  const absl::Status status = place_.PrepareCheckpoint(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("use a higher number"));
}

TEST_F(CheckpointDirectoryTest, RefusesToReplaceAManifest) {
  Write(1);
  const std::string text = *ReadWholeFile(files_, place_.ManifestPath(1), kMaxManifestBytes);
  EXPECT_EQ(place_.WriteManifest(1, text), absl::OkStatus());
  Manifest other = *place_.ReadManifest(1);
  other.set_created("later");
  EXPECT_EQ(place_.WriteManifest(1, *EncodeManifest(other)).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(place_.WriteManifest(2, text).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(place_.WriteManifest(2, "hello").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(*place_.Complete(), ElementsAre(1));
}

TEST_F(CheckpointDirectoryTest, ReturnsTheNewestIntactCheckpoint) {
  for (const uint64_t number : {1, 2, 3}) Write(number);
  Truncate(place_.ManifestPath(3), 1);
  std::vector<std::string> passed_over;
  const auto manifest = place_.Newest(Any, &passed_over);
  ASSERT_EQ(manifest.status(), absl::OkStatus());
  EXPECT_EQ(manifest->checkpoint(), 2u);
  ASSERT_THAT(passed_over, SizeIs(1));
  EXPECT_THAT(passed_over[0], HasSubstr("checkpoint 3 cannot be loaded: /d/checkpoint-000000000003/"
                                        "MANIFEST.json: this is not a manifest"));
}

TEST_F(CheckpointDirectoryTest, ErrorListsTheDamageIfNoCheckpointIsIntact) {
  std::vector<std::string> passed_over;
  EXPECT_EQ(place_.Newest(Any, &passed_over).status().code(), absl::StatusCode::kNotFound);
  Write(1);
  Truncate(place_.ManifestPath(1), 1);
  const absl::Status status = place_.Newest(Any, &passed_over).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("checkpoint 1 cannot be loaded"));
}

TEST_F(CheckpointDirectoryTest, DoesNotSkipACheckpointOnTransientErrors) {
  for (const uint64_t number : {1, 2}) Write(number);
  for (const int error : {EACCES, EMFILE}) {
    files_.SetFaultHook([&](FaultyFileSystem::Operation operation, const std::string& path) {
      return operation == FaultyFileSystem::Operation::kOpenForReading &&
                     path == place_.ManifestPath(2)
                 ? std::optional<FaultyFileSystem::Fault>({error, 0})
                 : std::nullopt;
    });
    std::vector<std::string> passed_over;
    EXPECT_EQ(place_.Newest(Any, &passed_over).status(),
              FileError(FileAction::kRead, "open", place_.ManifestPath(2), error));
  }
}

TEST_F(CheckpointDirectoryTest, PruneKeepsTheListedAndTheNewerCheckpoints) {
  for (const uint64_t number : {1, 2, 3, 4}) Write(number);
  ASSERT_TRUE(place_.PrepareCheckpoint(6).ok());
  EXPECT_EQ(place_.Prune(0, 2, 4, {2, 4}), absl::OkStatus());
  EXPECT_THAT(*place_.Complete(), ElementsAre(2, 4)) << "a manifest goes first";
  EXPECT_THAT(Names(1), ElementsAre("server-1-of-2.safetensors"));
  EXPECT_EQ(place_.Prune(1, 2, 4, {2, 4}), absl::OkStatus());
  EXPECT_THAT(Names(1), ElementsAre("(no directory)"));
  EXPECT_THAT(Names(2), SizeIs(3));
  EXPECT_THAT(Names(6), IsEmpty()) << "newer checkpoints are not pruned";
  EXPECT_EQ(place_.Prune(1, 2, 4, {2, 4}), absl::OkStatus()) << "safe to repeat";
}

TEST_F(CheckpointDirectoryTest, RemovesLeftoversOfFailedCheckpoints) {
  for (const uint64_t number : {1, 2, 3, 4}) Write(number);
  for (const uint64_t number : {2, 3, 4}) {
    ASSERT_EQ(place_.RemoveManifest(number), absl::OkStatus());
  }
  const std::string torn = place_.ShardPath(3, 0, 2) + ".tmp";
  ASSERT_EQ(files_.Rename(place_.ShardPath(3, 0, 2), torn), absl::OkStatus());
  EXPECT_EQ(place_.RemoveFailed(4, 0, 2), absl::OkStatus());
  EXPECT_THAT(Names(1), SizeIs(3)) << "a complete one stays";
  EXPECT_THAT(Names(2), ElementsAre("server-1-of-2.safetensors"))
      << "each server removes only its own shards";
  EXPECT_THAT(Names(3), ElementsAre("server-1-of-2.safetensors"));
  EXPECT_THAT(Names(4), SizeIs(2)) << "that checkpoint is in progress";
  EXPECT_EQ(place_.RemoveFailed(5, 1, 2), absl::OkStatus());
  EXPECT_THAT(Names(2), ElementsAre("(no directory)"));
  EXPECT_THAT(Names(4), ElementsAre("server-0-of-2.safetensors"));
  EXPECT_EQ(place_.RemoveFailed(5, 1, 2), absl::OkStatus()) << "safe to repeat";
}

TEST_F(CheckpointDirectoryTest, RemovesFailedCheckpointsWithHigherNumbers) {
  // The coordinator reached checkpoint 4, but could not save its state, so it restarts with
  // checkpoint 2 in progress.
  for (const uint64_t number : {1, 2, 4, 5}) Write(number, 2);
  for (const uint64_t number : {2, 4}) ASSERT_EQ(place_.RemoveManifest(number), absl::OkStatus());
  EXPECT_EQ(place_.RemoveFailed(2, 0, 2), absl::OkStatus());
  EXPECT_THAT(Names(1), SizeIs(3));
  EXPECT_THAT(Names(2), SizeIs(2)) << "that checkpoint is in progress";
  EXPECT_THAT(Names(4), ElementsAre("server-1-of-2.safetensors"));
  EXPECT_THAT(Names(5), SizeIs(3)) << "a complete one stays";
}

TEST_F(CheckpointDirectoryTest, PrunesShardsOfALargerCluster) {
  Write(1, 4);
  Write(2, 2);
  EXPECT_EQ(place_.Prune(0, 2, 2, {2}), absl::OkStatus());
  EXPECT_EQ(place_.Prune(1, 2, 2, {2}), absl::OkStatus());
  EXPECT_THAT(Names(1), ElementsAre("(no directory)"));
}

TEST_F(CheckpointDirectoryTest, RemovesTemporaryFilesOfAFailedCheckpoint) {
  ASSERT_TRUE(place_.PrepareCheckpoint(1).ok());
  for (const char* const name :
       {"server-0-of-2.safetensors.tmp", "MANIFEST.json.tmp", "mine.txt"}) {
    ASSERT_TRUE(WriteFileAtomically(files_, place_.CheckpointPath(1) + "/" + name, "x").ok());
  }
  Write(2);
  EXPECT_EQ(place_.Prune(0, 2, 2, {2}), absl::OkStatus());
  EXPECT_THAT(Names(1), ElementsAre("mine.txt")) << "foreign files stay";
}

TEST_F(CheckpointDirectoryTest, AServerRemovesOnlyItsOwnShards) {
  for (const uint64_t number : {1, 2, 3, 4}) Write(number);
  EXPECT_EQ(place_.RemoveShardsAbove(2, {4}, 0, 2), absl::OkStatus());
  EXPECT_THAT(Names(2), SizeIs(3));
  EXPECT_THAT(Names(3), ElementsAre("MANIFEST.json", "server-1-of-2.safetensors"));
  EXPECT_THAT(Names(4), SizeIs(3));
  EXPECT_EQ(place_.RemoveManifest(3), absl::OkStatus());
  EXPECT_EQ(place_.RemoveManifest(3), absl::OkStatus()) << "already removed";
  EXPECT_THAT(Names(3), ElementsAre("server-1-of-2.safetensors"));
}

TEST_F(CheckpointDirectoryTest, PrunesNothingIfTheNewestCheckpointIsDamaged) {
  Write(1);
  Write(2);
  EXPECT_EQ(place_.Prune(0, 2, 3, {3}).code(), absl::StatusCode::kNotFound);
  Truncate(place_.ShardPath(2, 1, 2), 1);
  const absl::Status shard = place_.Prune(0, 2, 2, {2});
  EXPECT_EQ(shard.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(shard.message()), HasSubstr("the manifest says"));
  Truncate(place_.ManifestPath(2), 1);
  EXPECT_EQ(place_.Prune(0, 2, 2, {2}).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Names(1), SizeIs(3));
}

}  // namespace
}  // namespace torchps

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/sample_checkpoint.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/checkpoint_reader.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The servers' restored state, joined in flat vectors.
struct Whole {
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
  std::vector<int64_t> missed;
  int64_t elements = 0;
};

Whole Assemble(const SampleModel& model, const std::vector<RestoredServer>& servers) {
  Whole whole;
  whole.values.resize(model.values.size());
  whole.missed.resize(model.missed.size());
  whole.slots.assign(2, std::vector<float>(model.slots[0].size()));
  for (const RestoredServer& server : servers) {
    for (const BlockBuffer& block : server.blocks) {
      std::copy(block.values.begin(), block.values.end(),
                whole.values.begin() + block.range.offset);
      for (size_t slot = 0; slot < block.slots.size(); ++slot) {
        std::copy(block.slots[slot].begin(), block.slots[slot].end(),
                  whole.slots[slot].begin() + block.range.offset);
      }
      EXPECT_TRUE(MissedSteps::Check(block.missed, block.range.length, block.version).ok());
      for (const MissedRun& run : block.missed) {
        const auto first = whole.missed.begin() + block.range.offset;
        std::fill(first + run.begin, first + run.end, run.steps);
      }
      whole.elements += block.range.length;
    }
  }
  return whole;
}

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The parameter is the block size in bytes. The largest size cuts the model into one trained block
// for each server, so each number of servers cuts it differently.
class RestoreChainTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(RestoreChainTest, RestoresEveryByteAcrossServerCounts) {
  const SampleModel model(GetParam());
  FaultyFileSystem files;
  ASSERT_EQ(WriteCheckpoint(files, "/d", 1, 4, model), absl::OkStatus());
  uint64_t checkpoint = 1;
  for (const int servers : {4, 2, 3, 1, 4}) {
    std::vector<RestoredServer> restored;
    std::vector<ShardInfo> shards;
    for (int server = 0; server < servers; ++server) {
      auto one = RestoreServer(files, "/d", model, server, servers);
      ASSERT_EQ(one.status(), absl::OkStatus());
      EXPECT_EQ(one->checkpoint, checkpoint);
      EXPECT_THAT(one->passed_over, IsEmpty());
      // Writes the next checkpoint from the restored blocks.
      const auto shard = WriteShard(files, "/d", checkpoint + 1, server, servers, one->blocks);
      ASSERT_EQ(shard.status(), absl::OkStatus());
      shards.push_back(*shard);
      restored.push_back(*std::move(one));
    }
    ASSERT_EQ(CheckpointDirectory(&files, "/d")
                  .WriteManifest(checkpoint + 1,
                                 *EncodeManifest(MakeManifest(model, checkpoint + 1, shards))),
              absl::OkStatus());
    ++checkpoint;
    const Whole whole = Assemble(model, restored);
    EXPECT_EQ(whole.elements, model.layout.size());
    EXPECT_TRUE(SameBytes(whole.values, model.values)) << servers << " servers";
    EXPECT_TRUE(SameBytes(whole.slots[0], model.slots[0])) << servers << " servers";
    EXPECT_EQ(whole.missed, model.missed) << servers << " servers";
    EXPECT_TRUE(SameBytes(whole.slots[1], model.slots[1])) << servers << " servers";
  }
}

INSTANTIATE_TEST_SUITE_P(BlockBytes, RestoreChainTest, ::testing::Values(64, 256, 1 << 20));

class RestoreTest : public ::testing::Test {
 protected:
  absl::Status Status(uint64_t job_id, const ModelLayout& layout) {
    const BlockMap map = model_.Cut(1);
    return Restore::Open(&files_, {"/d", job_id, &layout, &map, 0}).status();
  }
  void Write(uint64_t checkpoint, int servers) {
    ASSERT_EQ(WriteCheckpoint(files_, "/d", checkpoint, servers, model_,
                              static_cast<int64_t>(checkpoint)),
              absl::OkStatus());
  }

  const SampleModel model_{1 << 20};
  FaultyFileSystem files_;
};

TEST_F(RestoreTest, AResumedJobSkipsCheckpointsFromBeforeTheResume) {
  constexpr Incarnation kBefore = 1000;
  constexpr Incarnation kResumed = kBefore + kResumeGap;
  const BlockMap map = model_.Cut(1);
  const CheckpointDirectory place(&files_, "/d");
  const auto write = [&](uint64_t checkpoint, Incarnation next_incarnation) {
    Write(checkpoint, 1);
    Manifest manifest = *place.ReadManifest(checkpoint);
    manifest.mutable_coordinator()->set_next_incarnation(next_incarnation);
    ASSERT_EQ(place.RemoveManifest(checkpoint), absl::OkStatus());
    ASSERT_EQ(place.WriteManifest(checkpoint, *EncodeManifest(manifest)), absl::OkStatus());
  };
  const auto open = [&](uint64_t resumed_checkpoint) {
    return Restore::Open(&files_, {"/d", SampleModel::kJobId, &model_.layout, &map, 0,
                                   resumed_checkpoint, kResumed});
  };
  const absl::Status empty = open(3).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kDataLoss) << "must not start from scratch";
  EXPECT_THAT(std::string(empty.message()), HasSubstr("resumed from checkpoint 3"));
  write(2, kBefore - 2);
  const absl::Status older = open(3).status();
  EXPECT_EQ(older.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(older.message()),
              HasSubstr("checkpoint 2 cannot be loaded: it is older than checkpoint 3"));
  write(3, kBefore - 1);
  write(4, kBefore);
  EXPECT_EQ((*open(0))->checkpoint(), 4u);
  const auto chosen = open(3);
  ASSERT_EQ(chosen.status(), absl::OkStatus());
  EXPECT_EQ((*chosen)->checkpoint(), 3u) << "the coordinator skipped number 4";
  EXPECT_THAT((*chosen)->passed_over(), ElementsAre(HasSubstr("checkpoint 4 cannot be loaded")));
  // The resumed job has written checkpoint 5. If the coordinator restarted since then, it may have
  // lower incarnation numbers.
  for (const Incarnation next : {kResumed + 3, kResumed - (Incarnation{1} << 20)}) {
    write(5, next);
    EXPECT_EQ((*open(3))->checkpoint(), 5u);
    ASSERT_EQ(place.RemoveManifest(5), absl::OkStatus());
  }
}

TEST_F(RestoreTest, KeepsVersionsAndLedgersForUnchangedBlocks) {
  Write(1, 3);
  const BlockMap map = model_.Cut(3);
  const auto restored = RestoreServer(files_, "/d", model_, 2, 3);
  ASSERT_EQ(restored.status(), absl::OkStatus());
  ASSERT_EQ(restored->blocks.size(), map.owned_by(2).size());
  for (const BlockBuffer& block : restored->blocks) {
    const BlockBuffer expected = model_.Block(map.blocks()[block.range.id], 1);
    EXPECT_EQ(block.version, expected.version);
    EXPECT_EQ(block.ledger, expected.ledger);
    EXPECT_EQ(block.range.server, 2);
  }
}

TEST_F(RestoreTest, ABlockWithNewBoundsTakesTheHighestOverlappingVersion) {
  Write(1, 4);
  const BlockMap old = model_.Cut(4);
  const auto restored = RestoreServer(files_, "/d", model_, 0, 1);
  ASSERT_EQ(restored.status(), absl::OkStatus());
  int overlapped_most = 0;
  for (const BlockBuffer& block : restored->blocks) {
    Version version = 0;
    LedgerEntry last[3];
    int overlapped = 0;
    for (const BlockRange& range : old.blocks()) {
      if (range.offset + range.length <= block.range.offset ||
          range.offset >= block.range.offset + block.range.length) {
        continue;
      }
      ++overlapped;
      const BlockBuffer one = model_.Block(range, 1);
      version = std::max(version, one.version);
      for (size_t slot = 0; slot < 3; ++slot) {
        if (last[slot].IsBefore(one.ledger[slot])) last[slot] = one.ledger[slot];
      }
    }
    overlapped_most = std::max(overlapped_most, overlapped);
    EXPECT_EQ(block.version, version);
    for (size_t slot = 0; slot < 3; ++slot) {
      EXPECT_EQ(block.ledger[slot].incarnation, last[slot].incarnation) << "slot " << slot;
      EXPECT_EQ(block.ledger[slot].last_step, last[slot].last_step) << "slot " << slot;
    }
  }
  EXPECT_GE(overlapped_most, 4);
}

TEST_F(RestoreTest, ReturnsNotFoundWithoutACheckpoint) {
  EXPECT_EQ(Status(SampleModel::kJobId, model_.layout).code(), absl::StatusCode::kNotFound);
}

TEST_F(RestoreTest, RefusesAnotherJobsDirectory) {
  Write(1, 1);
  const absl::Status status = Status(77, model_.layout);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "/d has checkpoints of job 123456789abcdef0; this is job 000000000000004d: resume that "
            "job, or use another directory");
}

TEST_F(RestoreTest, RefusesAnotherModel) {
  Write(1, 1);
  std::vector<Segment> segments = model_.layout.segments();
  segments[0].shape = {11, 37};
  const absl::Status status = Status(SampleModel::kJobId, *ModelLayout::Create(segments));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("body.weight"));
}

TEST_F(RestoreTest, RestoresTheOlderCheckpointIfItsShardIsDamaged) {
  Write(1, 2);
  Write(2, 2);
  const std::string path = CheckpointDirectory(&files_, "/d").ShardPath(2, 1, 2);
  files_.FlipBit(path, 2000, 6);
  const auto restored = RestoreServer(files_, "/d", model_, 1, 2);
  ASSERT_EQ(restored.status(), absl::OkStatus());
  EXPECT_EQ(restored->checkpoint, 1u);
  ASSERT_THAT(restored->passed_over, SizeIs(1));
  EXPECT_THAT(restored->passed_over[0], HasSubstr("checkpoint 2 cannot be loaded: "));
  EXPECT_THAT(restored->passed_over[0], HasSubstr(path));
  EXPECT_THAT(restored->passed_over[0], HasSubstr("its checksum is"));
  // Server 0 does not need the damaged shard.
  EXPECT_EQ(RestoreServer(files_, "/d", model_, 0, 2)->checkpoint, 2u);
}

TEST_F(RestoreTest, ErrorNamesTheMissingShard) {
  Write(1, 2);
  ASSERT_TRUE(files_.RemoveFile(CheckpointDirectory(&files_, "/d").ShardPath(1, 1, 2)).ok());
  const absl::Status status = RestoreServer(files_, "/d", model_, 0, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("checkpoint 1 was written by 2 servers, and server-1-of-2.safetensors is "
                        "not in /d: copy it there"));
}

TEST_F(RestoreTest, DoesNotMixShardsOfTwoCheckpoints) {
  Write(1, 2);
  Write(2, 2);
  const CheckpointDirectory place(&files_, "/d");
  ASSERT_TRUE(files_.Rename(place.ShardPath(1, 1, 2), place.ShardPath(2, 1, 2)).ok());
  EXPECT_EQ(RestoreServer(files_, "/d", model_, 1, 2).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace torchps

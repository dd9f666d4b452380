// Tests that a ShardReader reads exactly the output of a ShardWriter.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/testing/faulty_file_system.h"
#include "tests/testing/sample_checkpoint.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/checkpoint/shard_reader.h"
#include "torchps/checkpoint/shard_writer.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kServers = 2;
constexpr uint64_t kCheckpoint = 3;

class ShardTest : public ::testing::Test {
 protected:
  ShardTest() : map_(model_.Cut(kServers)), place_(&files_, "/d") {
    for (const BlockId id : map_.owned_by(1)) {
      ranges_.push_back(map_.blocks()[id]);
      blocks_.push_back(model_.Block(ranges_.back(), 0));
    }
  }

  absl::StatusOr<ShardInfo> Write() {
    return WriteShard(files_, "/d", kCheckpoint, 1, kServers, blocks_);
  }
  std::string path() const { return place_.ShardPath(kCheckpoint, 1, kServers); }
  static ShardHeader Header() { return {SampleModel::kJobId, kCheckpoint, 1, kServers}; }

  const SampleModel model_;
  const BlockMap map_;
  FaultyFileSystem files_;
  const CheckpointDirectory place_;
  std::vector<BlockRange> ranges_;
  std::vector<BlockBuffer> blocks_;
};

TEST_F(ShardTest, RestoresEveryBlock) {
  const auto info = Write();
  ASSERT_EQ(info.status(), absl::OkStatus());
  EXPECT_EQ(info->server_index(), 1);
  EXPECT_EQ(info->file(), "server-1-of-2.safetensors");
  EXPECT_EQ(info->min_version(), blocks_.front().version);
  EXPECT_EQ(info->max_version(), blocks_.back().version);

  const auto reader = ShardReader::Open(&files_, path(), Header(), *info, ranges_);
  ASSERT_EQ(reader.status(), absl::OkStatus());
  EXPECT_EQ((*reader)->slots(), 2);
  BlockBuffer block;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    ASSERT_EQ((*reader)->ReadBlock(i, &block), absl::OkStatus());
    EXPECT_EQ(block.range.id, blocks_[i].range.id);
    EXPECT_EQ(block.version, blocks_[i].version);
    EXPECT_EQ(block.values, blocks_[i].values);
    EXPECT_EQ(block.slots, blocks_[i].slots);
    EXPECT_EQ(block.ledger, blocks_[i].ledger);
    EXPECT_EQ(block.missed, blocks_[i].missed);
    std::vector<float> values;
    ASSERT_EQ((*reader)->ReadValues(i, &values), absl::OkStatus());
    EXPECT_EQ(values, blocks_[i].values);
  }
}

TEST_F(ShardTest, WritesFormat2IfNoElementMissedAStep) {
  for (BlockBuffer& block : blocks_) block.missed.clear();
  const auto info = Write();
  ASSERT_EQ(info.status(), absl::OkStatus());
  const auto file = SafetensorsReader::Open(&files_, path());
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_EQ((*file)->metadata().at("format_version"), "2");
  EXPECT_EQ((*file)->tensors().back().name, "ledger");
  EXPECT_EQ(ShardReader::Open(&files_, path(), Header(), *info, ranges_).status(),
            absl::OkStatus());
}

TEST_F(ShardTest, RejectsInvalidMissedSteps) {
  blocks_[0].missed = {{0, 1, blocks_[0].version + 1}};
  const auto info = Write();
  ASSERT_EQ(info.status(), absl::OkStatus());
  const absl::Status status = ShardReader::Open(&files_, path(), Header(), *info, ranges_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("invalid record of missed steps"));
}

TEST_F(ShardTest, AlignsEachTensorToItsElementSize) {
  for (int64_t length = 1; length <= 3; ++length) {
    BlockBuffer block;
    block.range = {0, 0, length, false, 0};
    block.values.assign(static_cast<size_t>(length), 1.5f);
    const auto info = WriteShard(files_, "/d", 9, 0, 1, {block});
    ASSERT_EQ(info.status(), absl::OkStatus());
    const std::string path = place_.ShardPath(9, 0, 1);
    const auto file = SafetensorsReader::Open(&files_, path);
    ASSERT_EQ(file.status(), absl::OkStatus());
    for (const TensorInfo& tensor : (*file)->tensors()) {
      EXPECT_EQ(tensor.begin % DtypeBytes(tensor.dtype), 0) << tensor.name;
    }
    const auto reader =
        ShardReader::Open(&files_, path, {SampleModel::kJobId, 9, 0, 1}, *info, {block.range});
    EXPECT_EQ(reader.status(), absl::OkStatus());
  }
}

TEST_F(ShardTest, ErrorNamesTheHeaderFieldThatDiffers) {
  const auto info = Write();
  ASSERT_TRUE(info.ok());
  const auto expect = [&](const ShardHeader& header, std::vector<BlockRange> ranges,
                          const char* words) {
    const absl::Status status =
        ShardReader::Open(&files_, path(), header, *info, std::move(ranges)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(std::string(status.message()), HasSubstr(path()));
  };
  expect({7, kCheckpoint, 1, kServers}, ranges_, "its job_id is 1311768467463790320; expected 7");
  expect({SampleModel::kJobId, 4, 1, kServers}, ranges_, "its checkpoint is 3; expected 4");
  expect({SampleModel::kJobId, kCheckpoint, 0, kServers}, ranges_, "its server_index is 1");
  expect({SampleModel::kJobId, kCheckpoint, 1, 3}, ranges_, "its server_count is 2");
  std::vector<BlockRange> others = ranges_;
  others[1].length += 1;
  expect(Header(), others, "block 3 of 65 elements is missing");
  others = ranges_;
  others.pop_back();
  expect(Header(), others, "versions of its blocks are missing");
}

TEST_F(ShardTest, RequiresTheManifestsSizeAndChecksum) {
  const auto info = Write();
  ASSERT_TRUE(info.ok());
  ShardInfo other = *info;
  other.set_bytes(info->bytes() + 1);
  EXPECT_THAT(ShardReader::Open(&files_, path(), Header(), other, ranges_).status().ToString(),
              HasSubstr("the manifest says"));
  other = *info;
  other.set_crc32c(info->crc32c() ^ 1);
  EXPECT_THAT(ShardReader::Open(&files_, path(), Header(), other, ranges_).status().ToString(),
              HasSubstr("its checksum is"));
}

// If any operation fails, the error names the file and the reason. Afterwards no file looks like a
// shard.
TEST_F(ShardTest, AFailureLeavesNoShard) {
  ASSERT_TRUE(Write().ok());
  const std::string whole = *ReadWholeFile(files_, path(), 1 << 20);
  ASSERT_TRUE(files_.RemoveFile(path()).ok());
  const int64_t before = files_.operations();
  ASSERT_TRUE(Write().ok());
  const int64_t operations = files_.operations() - before;
  ASSERT_TRUE(files_.RemoveFile(path()).ok());
  ASSERT_GT(operations, 8);
  for (const int error : {ENOSPC, EIO, EROFS}) {
    for (int64_t n = 1; n <= operations; ++n) {
      files_.FailNth(n, {error, 3});
      const auto info = Write();
      ASSERT_FALSE(info.ok()) << "operation " << n;
      EXPECT_THAT(std::string(info.status().message()), HasSubstr("/d/checkpoint-000000000003"));
      EXPECT_THAT(std::string(info.status().message()), HasSubstr(std::strerror(error)));
      const auto names = files_.List(place_.CheckpointPath(kCheckpoint));
      ASSERT_TRUE(names.ok());
      // Only a failure after the rename leaves the shard, and then the shard is complete.
      if (!names->empty()) {
        EXPECT_THAT(*names, ElementsAre("server-1-of-2.safetensors"));
        EXPECT_EQ(*ReadWholeFile(files_, path(), 1 << 20), whole);
        ASSERT_TRUE(files_.RemoveFile(path()).ok());
      }
    }
  }
}

TEST_F(ShardTest, DetectsACorruptedWriteBeforeTheManifest) {
  bool spoilt = false;
  files_.SetFaultHook([&](FaultyFileSystem::Operation operation, const std::string& path) {
    // This directory sync comes after the rename and before the writer verifies the file.
    if (operation == FaultyFileSystem::Operation::kSyncDirectory && !spoilt &&
        path == place_.CheckpointPath(kCheckpoint)) {
      spoilt = true;
      files_.FlipBit(this->path(), 2500, 3);
    }
    return std::nullopt;
  });
  const auto info = Write();
  EXPECT_TRUE(spoilt);
  EXPECT_EQ(info.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(info.status().message()), HasSubstr("was written"));
}

}  // namespace
}  // namespace torchps

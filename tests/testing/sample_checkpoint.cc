#include "tests/testing/sample_checkpoint.h"

#include <utility>

#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/checkpoint/shard_writer.h"
#include "torchps/common/check.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {

SampleModel::SampleModel(int64_t block_bytes_in) : block_bytes(block_bytes_in) {
  absl::StatusOr<ModelLayout> made = ModelLayout::Create({
      {"body.weight", {37, 11}, -1, false},
      {"body.bias", {11}, -1, false},
      {"norm.running_mean", {9}, -1, true},
      {"head.weight", {5, 7}, -1, false},
      {"scale", {}, -1, false},
  });
  TPS_CHECK(made.ok(), "the layout is not valid");
  layout = *std::move(made);
  for (int64_t i = 0; i < layout.size(); ++i) values.push_back(static_cast<float>(i) + 0.25f);
  slots.resize(2);
  for (int64_t i = 0; i < layout.trained_size(); ++i) {
    slots[0].push_back(-static_cast<float>(i) - 0.5f);
    slots[1].push_back(static_cast<float>(i) * 1e-6f + 1e-30f);
    missed.push_back(i / 20 % 3);
  }
}

BlockMap SampleModel::Cut(int servers) const {
  absl::StatusOr<BlockMap> map = BlockMap::Create(layout, block_bytes, servers);
  TPS_CHECK(map.ok(), "the model is too small for this number of servers");
  return *std::move(map);
}

BlockBuffer SampleModel::Block(const BlockRange& range, int64_t age) const {
  BlockBuffer block;
  block.range = range;
  block.version = 1000 + range.offset + age;
  const auto cut = [&](const std::vector<float>& all) {
    return std::vector<float>(all.begin() + range.offset,
                              all.begin() + range.offset + range.length);
  };
  block.values = cut(values);
  if (!range.averaged) {
    for (const std::vector<float>& array : slots) block.slots.push_back(cut(array));
    for (int64_t i = 0; i < range.length; ++i) {
      const int64_t steps = missed[range.offset + i];
      if (steps == 0) continue;
      if (!block.missed.empty() && block.missed.back().end == i &&
          block.missed.back().steps == steps) {
        ++block.missed.back().end;
      } else {
        block.missed.push_back({i, i + 1, steps});
      }
    }
  }
  // Slot 1 did not push. Odd blocks contain 5 more steps of slot 0 than even blocks, and 5 fewer of
  // slot 2. In odd blocks a later incarnation made slot 2's last step.
  block.ledger.resize(3);
  const int64_t ahead = range.id % 2 == 0 ? 0 : 5;
  block.ledger[0] = {4, 20 + ahead + age, ACCEPTED, 3, static_cast<uint64_t>(7 + age), 19 + age};
  block.ledger[2] = {
      Incarnation(ahead == 0 ? 6 : 7), 30 - ahead + age, REJECTED_STALE, 11, 5, 30 - ahead + age};
  return block;
}

absl::StatusOr<ShardInfo> WriteShard(FileSystem& files, const std::string& directory,
                                     uint64_t checkpoint, int server, int servers,
                                     const std::vector<BlockBuffer>& blocks) {
  const CheckpointDirectory place(&files, directory);
  if (absl::Status status = place.PrepareCheckpoint(checkpoint); !status.ok()) return status;
  std::vector<ShardBlock> announced;
  for (const BlockBuffer& block : blocks) {
    announced.push_back({block.range, static_cast<int>(block.slots.size())});
  }
  auto writer = ShardWriter::Create(&files, place.ShardPath(checkpoint, server, servers),
                                    {SampleModel::kJobId, checkpoint, server, servers}, announced);
  if (!writer.ok()) return writer.status();
  for (const BlockBuffer& block : blocks) {
    if (absl::Status status = (*writer)->Append(block.image()); !status.ok()) return status;
  }
  return (*writer)->Finish();
}

Manifest MakeManifest(const SampleModel& model, uint64_t checkpoint,
                      const std::vector<ShardInfo>& shards) {
  Manifest manifest;
  manifest.set_checkpoint(checkpoint);
  manifest.set_job_id(SampleModel::kJobId);
  manifest.mutable_job()->mutable_wire()->set_block_bytes(model.block_bytes);
  *manifest.mutable_layout() = EncodeLayout(model.layout);
  manifest.set_server_count(static_cast<int>(shards.size()));
  for (const ShardInfo& shard : shards) *manifest.add_shard() = shard;
  manifest.mutable_coordinator()->set_job_id(SampleModel::kJobId);
  manifest.mutable_coordinator()->set_running_seconds(12.5);
  manifest.mutable_coordinator()->set_last_checkpoint(checkpoint);
  manifest.set_created("2023-04-05T06:07:08Z");
  return manifest;
}

absl::Status WriteCheckpoint(FileSystem& files, const std::string& directory, uint64_t checkpoint,
                             int servers, const SampleModel& model, int64_t age) {
  const BlockMap map = model.Cut(servers);
  std::vector<ShardInfo> shards;
  for (int server = 0; server < servers; ++server) {
    std::vector<BlockBuffer> blocks;
    for (const BlockId id : map.owned_by(server)) {
      blocks.push_back(model.Block(map.blocks()[id], age));
    }
    absl::StatusOr<ShardInfo> shard =
        WriteShard(files, directory, checkpoint, server, servers, blocks);
    if (!shard.ok()) return shard.status();
    shards.push_back(*std::move(shard));
  }
  const absl::StatusOr<std::string> text = EncodeManifest(MakeManifest(model, checkpoint, shards));
  if (!text.ok()) return text.status();
  return CheckpointDirectory(&files, directory).WriteManifest(checkpoint, *text);
}

absl::StatusOr<RestoredServer> RestoreServer(FileSystem& files, const std::string& directory,
                                             const SampleModel& model, int server, int servers) {
  const BlockMap map = model.Cut(servers);
  auto restore =
      Restore::Open(&files, {directory, SampleModel::kJobId, &model.layout, &map, server});
  if (!restore.ok()) return restore.status();
  RestoredServer result;
  result.checkpoint = (*restore)->checkpoint();
  result.passed_over = (*restore)->passed_over();
  for (size_t i = 0; i < (*restore)->blocks().size(); ++i) {
    BlockBuffer block;
    if (absl::Status status = (*restore)->ReadBlock(i, &block); !status.ok()) return status;
    result.blocks.push_back(std::move(block));
  }
  return result;
}

}  // namespace torchps

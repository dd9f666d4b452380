#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint_directory.h"
#include "common/check.h"

namespace torchps {
namespace {

// Opens the server's shard in the first directory that contains an undamaged copy.
absl::StatusOr<std::unique_ptr<ShardReader>> OpenShard(FileSystem* files,
                                                       const std::vector<std::string>& directories,
                                                       const Manifest& manifest,
                                                       const BlockMap& blocks, int server) {
  const ShardHeader header = {manifest.job_id(), manifest.checkpoint(), server, blocks.servers()};
  std::vector<BlockRange> ranges;
  ranges.reserve(blocks.owned_by(server).size());
  for (const BlockId block : blocks.owned_by(server)) ranges.push_back(blocks.blocks()[block]);
  absl::Status damage;
  for (const std::string& directory : directories) {
    const std::string path = CheckpointDirectory(files, directory)
                                 .ShardPath(manifest.checkpoint(), server, blocks.servers());
    auto shard = ShardReader::Open(files, path, header, manifest.shard(server), ranges);
    if (shard.ok()) return shard;
    if (!absl::IsNotFound(shard.status())) damage.Update(shard.status());
  }
  if (!damage.ok()) return damage;
  return absl::NotFoundError(
      absl::StrCat("checkpoint ", manifest.checkpoint(), " was written by ", blocks.servers(),
                   " servers, and ", CheckpointDirectory::ShardName(server, blocks.servers()),
                   " is not in ", absl::StrJoin(directories, " or "), ": copy it there"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    FileSystem* files, const std::vector<std::string>& directories, Manifest manifest,
    const std::vector<BlockRange>& needed) {
  absl::StatusOr<ManifestBlocks> cut = GetBlocks(manifest);
  if (!cut.ok()) return cut.status();
  auto reader = absl::WrapUnique(new CheckpointReader(std::move(manifest), *std::move(cut)));
  const BlockMap& map = reader->cut_.blocks;
  std::vector<bool> wanted(static_cast<size_t>(map.servers()));
  for (const BlockRange& range : needed) {
    const BlockId last = reader->BlockAt(range.offset + range.length - 1);
    for (BlockId block = reader->BlockAt(range.offset); block <= last; ++block) {
      wanted[static_cast<size_t>(map.blocks()[block].server)] = true;
    }
  }
  bool first = true;
  reader->shards_.resize(wanted.size());
  for (int server = 0; server < map.servers(); ++server) {
    if (!wanted[static_cast<size_t>(server)]) continue;
    auto shard = OpenShard(files, directories, reader->manifest_, map, server);
    if (!shard.ok()) return shard.status();
    if (!std::exchange(first, false) && (*shard)->slots() != reader->slots_) {
      return absl::DataLossError(absl::StrCat(
          "the shards of checkpoint ", reader->manifest_.checkpoint(), " have ", reader->slots_,
          " and ", (*shard)->slots(), " arrays of the optimizer; expected the same"));
    }
    reader->slots_ = (*shard)->slots();
    reader->shards_[static_cast<size_t>(server)] = *std::move(shard);
  }
  return reader;
}

CheckpointReader::CheckpointReader(Manifest manifest, ManifestBlocks cut)
    : manifest_(std::move(manifest)), cut_(std::move(cut)) {}

BlockId CheckpointReader::BlockAt(int64_t element) const {
  TPS_CHECK(element >= 0 && element < layout().size(), "an element of the flat vector");
  const auto after = std::upper_bound(
      blocks().begin(), blocks().end(), element,
      [](int64_t offset, const BlockRange& block) { return offset < block.offset; });
  return std::prev(after)->id;
}

absl::Status CheckpointReader::ReadBlock(BlockId block, BlockBuffer* out) const {
  // Server b mod S owns block b, so b / S is the index within that server's shard.
  const size_t servers = shards_.size();
  const auto& shard = shards_[block % servers];
  TPS_CHECK(shard != nullptr, "the block was said to be needed");
  return shard->ReadBlock(block / servers, out);
}

absl::Status CheckpointReader::ReadValues(BlockId block, std::vector<float>* out) const {
  const size_t servers = shards_.size();
  const auto& shard = shards_[block % servers];
  TPS_CHECK(shard != nullptr, "the block was said to be needed");
  return shard->ReadValues(block / servers, out);
}

}  // namespace torchps

#include "torchps/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/common/check.h"

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

namespace {

// Merges `other` into `ledger` and keeps each slot's higher entry.
void TakeHighest(const std::vector<LedgerEntry>& other, std::vector<LedgerEntry>* ledger) {
  if (ledger->size() < other.size()) ledger->resize(other.size());
  for (size_t slot = 0; slot < other.size(); ++slot) {
    LedgerEntry& mine = (*ledger)[slot];
    const bool same = mine.incarnation == other[slot].incarnation;
    const Step acknowledged = std::max(mine.acknowledged_step, other[slot].acknowledged_step);
    if (mine.IsBefore(other[slot])) mine = other[slot];
    if (same) mine.acknowledged_step = acknowledged;
  }
}

// Appends the part of `run` that overlaps a block of `length` elements. `shift` converts an offset
// in the run's block to an offset in that block.
void TakeMissed(const MissedRun& run, int64_t shift, int64_t length,
                std::vector<MissedRun>* missed) {
  const int64_t begin = std::max<int64_t>(run.begin + shift, 0);
  const int64_t end = std::min(run.end + shift, length);
  if (begin >= end) return;
  if (!missed->empty() && missed->back().end == begin && missed->back().steps == run.steps) {
    missed->back().end = end;
  } else {
    missed->push_back({begin, end, run.steps});
  }
}

// Checks that the checkpoint belongs to the same history as the resumed job.
absl::Status CheckGeneration(const Manifest& manifest, const Restore::Request& request) {
  const uint64_t resumed = request.resumed_checkpoint;
  if (resumed == 0 || manifest.checkpoint() == resumed) return absl::OkStatus();
  if (manifest.checkpoint() < resumed) {
    return absl::DataLossError(
        absl::StrCat("it is older than checkpoint ", resumed,
                     ", from which the job resumed and which is incomplete on this server"));
  }
  if (!IsOfLaterGeneration(request.incarnation, manifest.coordinator().next_incarnation())) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("the job resumed from checkpoint ", resumed, ", which is older"));
}

bool SameCut(const BlockRange& a, const BlockRange& b) {
  return a.offset == b.offset && a.length == b.length;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Restore>> Restore::Open(FileSystem* files, const Request& request) {
  std::vector<BlockRange> blocks;
  for (const BlockId block : request.blocks->owned_by(request.server_index)) {
    blocks.push_back(request.blocks->blocks()[block]);
  }
  const CheckpointDirectory directory(files, request.directory);
  std::vector<std::string> passed_over;
  std::unique_ptr<CheckpointReader> reader;
  const auto usable = [&](const Manifest& manifest) -> absl::Status {
    if (manifest.job_id() != request.job_id) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s has checkpoints of job %016x; this is job %016x: resume that job, or use another "
          "directory",
          request.directory, manifest.job_id(), request.job_id));
    }
    if (absl::Status course = CheckGeneration(manifest, request); !course.ok()) return course;
    absl::StatusOr<ManifestBlocks> cut = GetBlocks(manifest);
    if (!cut.ok()) return cut.status();
    if (absl::Status status = cut->layout.CheckSame(
            *request.layout, absl::StrCat("checkpoint ", manifest.checkpoint()), "the job");
        !status.ok()) {
      return status;
    }
    auto opened = CheckpointReader::Open(files, {request.directory}, manifest, blocks);
    if (!opened.ok()) return opened.status();
    reader = *std::move(opened);
    return absl::OkStatus();
  };
  if (absl::Status status = directory.Newest(usable, &passed_over).status(); !status.ok()) {
    if (!absl::IsNotFound(status) || request.resumed_checkpoint == 0) return status;
    return absl::DataLossError(
        absl::StrCat(status.message(), ", but the job resumed from checkpoint ",
                     request.resumed_checkpoint, ": use the directory with this server's shards"));
  }
  return absl::WrapUnique(
      new Restore(std::move(reader), std::move(blocks), std::move(passed_over)));
}

Restore::Restore(std::unique_ptr<CheckpointReader> reader, std::vector<BlockRange> blocks,
                 std::vector<std::string> passed_over)
    : reader_(std::move(reader)),
      blocks_(std::move(blocks)),
      passed_over_(std::move(passed_over)) {}

absl::Status Restore::ReadBlock(size_t i, BlockBuffer* out) {
  const BlockRange& range = blocks_[i];
  BlockId block = reader_->BlockAt(range.offset);
  if (SameCut(reader_->blocks()[block], range)) {
    const absl::Status status = reader_->ReadBlock(block, out);
    out->range = range;
    return status;
  }
  out->range = range;
  out->version = 0;
  out->ledger.clear();
  out->missed.clear();
  out->values.resize(static_cast<size_t>(range.length));
  out->slots.resize(range.averaged ? 0 : static_cast<size_t>(slots()));
  for (std::vector<float>& array : out->slots) array.resize(static_cast<size_t>(range.length));
  const int64_t end = range.offset + range.length;
  for (int64_t offset = range.offset; offset < end; ++block) {
    if (absl::Status status = reader_->ReadBlock(block, &old_); !status.ok()) return status;
    const int64_t length = std::min(end, old_.range.offset + old_.range.length) - offset;
    const auto copy = [&](const std::vector<float>& from, std::vector<float>* to) {
      std::copy_n(from.begin() + (offset - old_.range.offset), length,
                  to->begin() + (offset - range.offset));
    };
    copy(old_.values, &out->values);
    for (size_t slot = 0; slot < out->slots.size(); ++slot) {
      copy(old_.slots[slot], &out->slots[slot]);
    }
    for (const MissedRun& run : old_.missed) {
      TakeMissed(run, old_.range.offset - range.offset, range.length, &out->missed);
    }
    out->version = std::max(out->version, old_.version);
    TakeHighest(old_.ledger, &out->ledger);
    offset += length;
  }
  return absl::OkStatus();
}

}  // namespace torchps

#include "torchps/checkpoint/shard_writer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

template <typename T>
absl::string_view Bytes(absl::Span<const T> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::map<std::string, std::string> Metadata(const ShardHeader& header, uint32_t data_crc32c,
                                            const char* format_version = kShardFormatVersion) {
  return {{"format", kShardFormat},
          {"format_version", format_version},
          {"job_id", absl::StrCat(header.job_id)},
          {"checkpoint", absl::StrCat(header.checkpoint)},
          {"server_index", absl::StrCat(header.server_index)},
          {"server_count", absl::StrCat(header.server_count)},
          {"data_crc32c", absl::StrFormat("%08x", data_crc32c)}};
}

// Returns an upper bound for the header size in bytes. The numbers of ledger rows and missed runs
// are not known yet, so it allows for the longest numbers.
int64_t HeaderRoom(const ShardHeader& header, const std::vector<ShardBlock>& blocks) {
  SafetensorsHeader plan;
  plan.metadata = Metadata(header, 0);
  int64_t end = 0;
  const auto add = [&](std::string name, int64_t length) {
    const int64_t begin = end;
    end += length * DtypeBytes(Dtype::kF32);
    plan.tensors.push_back({std::move(name), Dtype::kF32, {length}, begin, end});
  };
  for (const ShardBlock& block : blocks) {
    add(BlockTensorName(block.range.id), block.range.length);
    for (int slot = 0; slot < block.slots; ++slot) {
      add(SlotTensorName(block.range.id, slot), block.range.length);
    }
  }
  constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();
  for (const char* const name :
       {kPaddingTensorName, kVersionsTensorName, kLedgerTensorName, kMissedTensorName}) {
    plan.tensors.push_back({name, Dtype::kI64, {kLongest, kLedgerColumns}, kLongest, kLongest});
  }
  return static_cast<int64_t>(FormatSafetensorsHeader(plan).size());
}

}  // namespace

int64_t ShardWriter::LeastBytes(const ShardHeader& header, const std::vector<ShardBlock>& blocks) {
  int64_t bytes = HeaderRoom(header, blocks);
  for (const ShardBlock& block : blocks) {
    bytes += block.range.length * (1 + block.slots) * DtypeBytes(Dtype::kF32) +
             DtypeBytes(Dtype::kI64);  // the version
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(FileSystem* files,
                                                                 std::string path,
                                                                 const ShardHeader& header,
                                                                 std::vector<ShardBlock> blocks) {
  auto file = SafetensorsWriter::Create(files, path, HeaderRoom(header, blocks));
  if (!file.ok()) return file.status();
  return absl::WrapUnique(
      new ShardWriter(files, *std::move(file), std::move(path), header, std::move(blocks)));
}

ShardWriter::ShardWriter(FileSystem* files, std::unique_ptr<SafetensorsWriter> file,
                         std::string path, const ShardHeader& header,
                         std::vector<ShardBlock> blocks)
    : files_(files),
      path_(std::move(path)),
      header_(header),
      blocks_(std::move(blocks)),
      file_(std::move(file)) {
  versions_.reserve(blocks_.size());
}

absl::Status ShardWriter::Append(const BlockImage& block) {
  TPS_CHECK(next_ < blocks_.size(), "no more blocks than were announced");
  const ShardBlock& expected = blocks_[next_++];
  const size_t length = static_cast<size_t>(expected.range.length);
  TPS_CHECK(block.range.id == expected.range.id && block.values.size() == length &&
                block.slots.size() == static_cast<size_t>(expected.slots),
            "the block that was announced");
  file_->BeginTensor(BlockTensorName(block.range.id), Dtype::kF32, {expected.range.length});
  if (absl::Status status = file_->Append(Bytes(block.values)); !status.ok()) return status;
  for (int slot = 0; slot < expected.slots; ++slot) {
    const absl::Span<const float> array = block.slots[static_cast<size_t>(slot)];
    TPS_CHECK(array.size() == length, "an array of the optimizer is as long as the block");
    file_->BeginTensor(SlotTensorName(block.range.id, slot), Dtype::kF32, {expected.range.length});
    if (absl::Status status = file_->Append(Bytes(array)); !status.ok()) return status;
  }
  floats_ += length * (1 + block.slots.size());

  versions_.push_back(block.version);
  for (size_t slot = 0; slot < block.ledger.size(); ++slot) {
    const LedgerEntry& entry = block.ledger[slot];
    if (entry == LedgerEntry()) continue;
    const int64_t row[kLedgerColumns] = {block.range.id,
                                         static_cast<int64_t>(slot),
                                         entry.last_step,
                                         entry.last_verdict,
                                         entry.last_lag,
                                         0,  // kLedgerUnused
                                         static_cast<int64_t>(entry.applied),
                                         entry.acknowledged_step,
                                         static_cast<int64_t>(entry.incarnation)};
    ledger_.insert(ledger_.end(), std::begin(row), std::end(row));
  }
  for (const MissedRun& run : block.missed) {
    const int64_t row[kMissedColumns] = {block.range.id, run.begin, run.end, run.steps};
    missed_.insert(missed_.end(), std::begin(row), std::end(row));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShardInfo> ShardWriter::Finish() {
  TPS_CHECK(next_ == blocks_.size(), "all blocks that were announced");
  if (floats_ % 2 != 0) {
    file_->BeginTensor(kPaddingTensorName, Dtype::kF32, {1});
    const float zero = 0;
    if (absl::Status status = file_->Append(Bytes<float>({&zero, 1})); !status.ok()) return status;
  }
  file_->BeginTensor(kVersionsTensorName, Dtype::kI64, {static_cast<int64_t>(versions_.size())});
  if (absl::Status status = file_->Append(Bytes<Version>(versions_)); !status.ok()) return status;
  file_->BeginTensor(kLedgerTensorName, Dtype::kI64,
                     {static_cast<int64_t>(ledger_.size() / kLedgerColumns), kLedgerColumns});
  if (absl::Status status = file_->Append(Bytes<int64_t>(ledger_)); !status.ok()) return status;
  if (!missed_.empty()) {
    file_->BeginTensor(kMissedTensorName, Dtype::kI64,
                       {static_cast<int64_t>(missed_.size() / kMissedColumns), kMissedColumns});
    if (absl::Status status = file_->Append(Bytes<int64_t>(missed_)); !status.ok()) return status;
  }

  const auto written = file_->Finish(
      Metadata(header_, file_->data_crc32c(),
               missed_.empty() ? kShardFormatVersion : kShardFormatVersionWithMissed));
  if (!written.ok()) return written.status();
  // Read the shard back, so that a manifest lists only readable shards.
  auto reader = SafetensorsReader::Open(files_, path_);
  if (!reader.ok()) return reader.status();
  const absl::StatusOr<uint32_t> crc = (*reader)->Checksum();
  if (!crc.ok()) return crc.status();
  if (*crc != written->crc32c) {
    return absl::DataLossError(
        absl::StrFormat("%s has checksum %08x; %08x was written", path_, *crc, written->crc32c));
  }

  ShardInfo info;
  info.set_server_index(header_.server_index);
  info.set_file(path_.substr(path_.rfind('/') + 1));
  info.set_bytes(static_cast<uint64_t>(written->bytes));
  info.set_crc32c(written->crc32c);
  if (!versions_.empty()) {
    const auto [least, most] = std::minmax_element(versions_.begin(), versions_.end());
    info.set_min_version(*least);
    info.set_max_version(*most);
  }
  return info;
}

}  // namespace torchps

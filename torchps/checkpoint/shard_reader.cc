#include "torchps/checkpoint/shard_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/checkpoint/shard_format.h"

namespace torchps {
namespace {

template <typename T>
absl::Span<char> Bytes(std::vector<T>* numbers) {
  return {reinterpret_cast<char*>(numbers->data()), numbers->size() * sizeof(T)};
}

bool IsVector(const TensorInfo& tensor, absl::string_view name, Dtype dtype, int64_t length) {
  return tensor.name == name && tensor.dtype == dtype &&
         tensor.shape == std::vector<int64_t>{length};
}

// Parses a ledger row. Returns false if the row is invalid.
bool ParseEntry(const int64_t* row, LedgerEntry* entry) {
  if (row[kLedgerLastStep] < 0 || row[kLedgerAcknowledgedStep] < 0 || row[kLedgerLastVerdict] < 0 ||
      row[kLedgerLastVerdict] > std::numeric_limits<int32_t>::max() ||
      !Verdict_IsValid(static_cast<int>(row[kLedgerLastVerdict]))) {
    return false;
  }
  entry->last_step = row[kLedgerLastStep];
  entry->last_verdict = static_cast<Verdict>(row[kLedgerLastVerdict]);
  entry->last_lag = row[kLedgerLastLag];
  entry->applied = static_cast<uint64_t>(row[kLedgerApplied]);
  entry->acknowledged_step = row[kLedgerAcknowledgedStep];
  entry->incarnation = static_cast<Incarnation>(row[kLedgerIncarnation]);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardReader>> ShardReader::Open(FileSystem* files,
                                                               const std::string& path,
                                                               const ShardHeader& header,
                                                               const ShardInfo& info,
                                                               std::vector<BlockRange> blocks) {
  auto file = SafetensorsReader::Open(files, path);
  if (!file.ok()) return file.status();
  auto reader = absl::WrapUnique(new ShardReader(*std::move(file)));
  if (static_cast<uint64_t>(reader->file_->bytes()) != info.bytes()) {
    return reader->Damaged(absl::StrCat("it has ", reader->file_->bytes(),
                                        " bytes; the manifest says ", info.bytes()));
  }
  const absl::StatusOr<uint32_t> crc = reader->file_->Checksum();
  if (!crc.ok()) return crc.status();
  if (*crc != info.crc32c()) {
    return reader->Damaged(
        absl::StrFormat("its checksum is %08x; the manifest says %08x", *crc, info.crc32c()));
  }
  if (absl::Status status = reader->Index(header, std::move(blocks)); !status.ok()) return status;
  return reader;
}

absl::Status ShardReader::Damaged(absl::string_view what) const {
  return absl::DataLossError(
      absl::StrCat(file_->path(), " is damaged or not the expected shard: ", what));
}

absl::Status ShardReader::Index(const ShardHeader& header, std::vector<BlockRange> blocks) {
  blocks_ = std::move(blocks);
  const auto format = file_->metadata().find("format_version");
  const bool has_missed =
      format != file_->metadata().end() && format->second == kShardFormatVersionWithMissed;
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"format", kShardFormat},
      {"format_version", has_missed ? kShardFormatVersionWithMissed : kShardFormatVersion},
      {"job_id", absl::StrCat(header.job_id)},
      {"checkpoint", absl::StrCat(header.checkpoint)},
      {"server_index", absl::StrCat(header.server_index)},
      {"server_count", absl::StrCat(header.server_count)},
  };
  for (const auto& [key, value] : expected) {
    const auto found = file_->metadata().find(key);
    const std::string got = found == file_->metadata().end() ? "(nothing)" : found->second;
    if (got != value) return Damaged(absl::StrCat("its ", key, " is ", got, "; expected ", value));
  }

  // The tensors must be exactly those that ShardWriter writes for these blocks, in that order.
  const std::vector<TensorInfo>& tensors = file_->tensors();
  size_t next = 0;
  const auto take = [&](absl::string_view name, Dtype dtype, int64_t length) {
    if (next >= tensors.size() || !IsVector(tensors[next], name, dtype, length)) return false;
    ++next;
    return true;
  };
  bool first = true;
  uint64_t floats = 0;
  for (const BlockRange& block : blocks_) {
    tensor_.push_back(next);
    if (!take(BlockTensorName(block.id), Dtype::kF32, block.length)) {
      return Damaged(
          absl::StrCat("block ", block.id, " of ", block.length, " elements is missing"));
    }
    int slots = 0;
    while (!block.averaged && take(SlotTensorName(block.id, slots), Dtype::kF32, block.length)) {
      ++slots;
    }
    if (!block.averaged) {
      if (!std::exchange(first, false) && slots != slots_) {
        return Damaged(absl::StrCat("block ", block.id, " has ", slots,
                                    " arrays of the optimizer; other blocks have ", slots_));
      }
      slots_ = slots;
    }
    floats += static_cast<uint64_t>(block.length) * static_cast<uint64_t>(1 + slots);
  }
  if (floats % 2 != 0 && !take(kPaddingTensorName, Dtype::kF32, 1)) {
    return Damaged("the padding is missing");
  }
  const size_t versions = next;
  if (!take(kVersionsTensorName, Dtype::kI64, static_cast<int64_t>(blocks_.size()))) {
    return Damaged("the versions of its blocks are missing");
  }
  const auto is_table = [&](size_t tensor, absl::string_view name, int64_t columns) {
    return tensor < tensors.size() && tensors[tensor].name == name &&
           tensors[tensor].dtype == Dtype::kI64 && tensors[tensor].shape.size() == 2 &&
           tensors[tensor].shape[1] == columns;
  };
  const size_t ledger = next++;
  if (!is_table(ledger, kLedgerTensorName, kLedgerColumns)) {
    return Damaged("the ledger of its blocks is missing");
  }
  const size_t missed = next;
  if (has_missed && !is_table(next++, kMissedTensorName, kMissedColumns)) {
    return Damaged("the table of missed steps is missing");
  }
  if (next != tensors.size()) {
    return Damaged(absl::StrCat("it has an unexpected tensor '", tensors[next].name, "'"));
  }
  if (absl::Status status = IndexVersions(versions); !status.ok()) return status;
  if (absl::Status status = IndexLedger(ledger); !status.ok()) return status;
  missed_.resize(blocks_.size());
  return has_missed ? IndexMissed(missed) : absl::OkStatus();
}

absl::Status ShardReader::IndexVersions(size_t tensor) {
  versions_.resize(blocks_.size());
  if (absl::Status status = file_->Read(tensor, Bytes(&versions_)); !status.ok()) return status;
  for (const Version version : versions_) {
    if (version < 0) return Damaged(absl::StrCat("a block has version ", version));
  }
  return absl::OkStatus();
}

absl::Status ShardReader::IndexLedger(size_t tensor) {
  const TensorInfo& info = file_->tensors()[tensor];
  std::vector<int64_t> rows(static_cast<size_t>((info.end - info.begin) / DtypeBytes(info.dtype)));
  if (absl::Status status = file_->Read(tensor, Bytes(&rows)); !status.ok()) return status;
  ledgers_.resize(blocks_.size());
  size_t block = 0;
  int64_t previous_slot = -1;
  for (size_t begin = 0; begin < rows.size(); begin += kLedgerColumns) {
    const int64_t* const row = &rows[begin];
    while (block < blocks_.size() && blocks_[block].id != row[kLedgerBlock]) {
      ++block;
      previous_slot = -1;
    }
    const int64_t slot = row[kLedgerSlot];
    LedgerEntry entry;
    if (block == blocks_.size() || slot < 0 || slot <= previous_slot || slot >= kMaxSlots ||
        !ParseEntry(row, &entry)) {
      return Damaged(absl::StrCat("row ", begin / kLedgerColumns, " of its ledger, of block ",
                                  row[kLedgerBlock], " and slot ", slot, ", is invalid"));
    }
    previous_slot = slot;
    ledgers_[block].resize(static_cast<size_t>(slot) + 1);
    ledgers_[block].back() = entry;
  }
  return absl::OkStatus();
}

absl::Status ShardReader::IndexMissed(size_t tensor) {
  const TensorInfo& info = file_->tensors()[tensor];
  std::vector<int64_t> rows(static_cast<size_t>((info.end - info.begin) / DtypeBytes(info.dtype)));
  if (absl::Status status = file_->Read(tensor, Bytes(&rows)); !status.ok()) return status;
  size_t block = 0;
  for (size_t begin = 0; begin < rows.size(); begin += kMissedColumns) {
    const int64_t* const row = &rows[begin];
    while (block < blocks_.size() && blocks_[block].id != row[kMissedBlock]) ++block;
    if (block == blocks_.size() || blocks_[block].averaged) {
      return Damaged(absl::StrCat("row ", begin / kMissedColumns,
                                  " of its missed steps is of block ", row[kMissedBlock],
                                  ", which is invalid"));
    }
    missed_[block].push_back({row[kMissedBegin], row[kMissedEnd], row[kMissedSteps]});
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const absl::Status checked = MissedSteps::Check(missed_[i], blocks_[i].length, versions_[i]);
    if (!checked.ok()) {
      return Damaged(absl::StrCat("block ", blocks_[i].id, ": ", checked.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardReader::ReadBlock(size_t i, BlockBuffer* out) const {
  const BlockRange& block = blocks_[i];
  out->range = block;
  out->version = versions_[i];
  out->ledger.assign(ledgers_[i].begin(), ledgers_[i].end());
  out->missed.assign(missed_[i].begin(), missed_[i].end());
  if (absl::Status status = ReadValues(i, &out->values); !status.ok()) return status;
  out->slots.resize(block.averaged ? 0 : static_cast<size_t>(slots_));
  for (size_t slot = 0; slot < out->slots.size(); ++slot) {
    std::vector<float>& array = out->slots[slot];
    array.resize(static_cast<size_t>(block.length));
    if (absl::Status status = file_->Read(tensor_[i] + 1 + slot, Bytes(&array)); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status ShardReader::ReadValues(size_t i, std::vector<float>* out) const {
  out->resize(static_cast<size_t>(blocks_[i].length));
  return file_->Read(tensor_[i], Bytes(out));
}

}  // namespace torchps

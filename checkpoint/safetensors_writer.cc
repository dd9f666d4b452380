#include "checkpoint/safetensors_writer.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "storage/crc32c.h"

namespace torchps {
namespace {

constexpr int64_t kLengthBytes = 8;
// Alignment of the data, so that tensors in a mapped file are aligned.
constexpr int64_t kAlignment = 64;
// Shorter writes are buffered.
constexpr size_t kSmallBytes = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(FileSystem* files,
                                                                             std::string path,
                                                                             int64_t header_room) {
  const int64_t data_begin =
      (kLengthBytes + header_room + kAlignment - 1) / kAlignment * kAlignment;
  header_room = data_begin - kLengthBytes;
  if (header_room > kMaxSafetensorsHeaderBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " would need a header of ", header_room, " bytes; a safetensors file allows ",
        kMaxSafetensorsHeaderBytes, ": make blocks larger (wire.block_bytes)"));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files->CreateFile(TemporaryPath(path));
  if (!file.ok()) return file.status();
  auto writer = absl::WrapUnique(
      new SafetensorsWriter(files, std::move(path), *std::move(file), header_room));
  if (absl::Status status =
          writer->file_->Append(std::string(static_cast<size_t>(data_begin), ' '));
      !status.ok()) {
    return status;
  }
  return writer;
}

SafetensorsWriter::SafetensorsWriter(FileSystem* files, std::string path,
                                     std::unique_ptr<WritableFile> file, int64_t header_room)
    : files_(files), path_(std::move(path)), header_room_(header_room), file_(std::move(file)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_) return;
  file_.reset();
  files_->RemoveFile(TemporaryPath(path_)).IgnoreError();
}

void SafetensorsWriter::BeginTensor(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  TPS_CHECK(tensors_.empty() || tensors_.back().end == data_bytes_, "the tensor before is whole");
  int64_t bytes = DtypeBytes(dtype);
  for (const int64_t dimension : shape) bytes *= dimension;
  tensors_.push_back({std::move(name), dtype, std::move(shape), data_bytes_, data_bytes_ + bytes});
}

absl::Status SafetensorsWriter::Append(absl::string_view data) {
  data_bytes_ += static_cast<int64_t>(data.size());
  TPS_CHECK(!tensors_.empty() && data_bytes_ <= tensors_.back().end, "bytes belong to a tensor");
  data_crc_ = Crc32c(data_crc_, data);
  if (small_.size() + data.size() <= kSmallBytes) {
    small_.append(data.data(), data.size());
    return absl::OkStatus();
  }
  if (absl::Status status = Flush(); !status.ok()) return status;
  return file_->Append(data);
}

absl::Status SafetensorsWriter::Flush() {
  if (small_.empty()) return absl::OkStatus();
  const absl::Status status = file_->Append(small_);
  small_.clear();
  return status;
}

absl::StatusOr<SafetensorsWriter::Result> SafetensorsWriter::Finish(
    const std::map<std::string, std::string>& metadata) {
  TPS_CHECK(tensors_.empty() || tensors_.back().end == data_bytes_, "the last tensor is whole");
  std::string json = FormatSafetensorsHeader({tensors_, metadata});
  TPS_CHECK(static_cast<int64_t>(json.size()) <= header_room_, "the header fits");
  json.resize(static_cast<size_t>(header_room_), ' ');
  std::string header(kLengthBytes, '\0');
  const uint64_t length = json.size();
  std::memcpy(&header[0], &length, sizeof(length));
  header += json;

  absl::Status status = Flush();
  if (status.ok()) status = file_->WriteAt(0, header);
  if (status.ok()) status = file_->Sync();
  if (absl::Status closed = file_->Close(); status.ok()) status = closed;
  if (status.ok()) status = files_->Rename(TemporaryPath(path_), path_);
  if (!status.ok()) return status;
  finished_ = true;
  if (status = files_->SyncDirectory(ParentDirectory(path_)); !status.ok()) return status;
  return Result{static_cast<int64_t>(header.size()) + data_bytes_,
                Crc32cCombine(Crc32c(0, header), data_crc_, static_cast<uint64_t>(data_bytes_))};
}

}  // namespace torchps

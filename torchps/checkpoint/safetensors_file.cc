#include "torchps/checkpoint/safetensors_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/storage/crc32c.h"

namespace torchps {

namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kPieceBytes = 1 << 20;
constexpr size_t kSmallBytes = 64 << 10;
static_assert(kSmallBytes <= size_t{kPieceBytes}, "a small tensor is one piece");

absl::Status NoSafetensors(const std::string& path, absl::string_view reason) {
  return absl::DataLossError(absl::StrCat(path, " is not a safetensors file: ", reason));
}

}  // namespace

absl::StatusOr<bool> LooksLikeSafetensors(const ReadableFile& file) {
  char head[kLengthBytes + 1];
  if (file.size() < static_cast<int64_t>(sizeof(head))) return false;
  if (absl::Status status = file.ReadAt(0, absl::MakeSpan(head)); !status.ok()) return status;
  uint64_t length = 0;
  std::memcpy(&length, head, sizeof(length));
  return head[kLengthBytes] == '{' && length <= static_cast<uint64_t>(file.size() - kLengthBytes);
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    FileSystem* files, const std::string& path) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = files->OpenForReading(path);
  if (!file.ok()) return file.status();
  const int64_t bytes = (*file)->size();
  if (bytes < kLengthBytes) {
    return NoSafetensors(path, absl::StrCat("it has ", bytes, " bytes; expected at least 8"));
  }
  char length_bytes[kLengthBytes];
  if (absl::Status status = (*file)->ReadAt(0, absl::MakeSpan(length_bytes)); !status.ok()) {
    return status;
  }
  uint64_t length = 0;
  std::memcpy(&length, length_bytes, sizeof(length));
  const int64_t most = std::min(bytes - kLengthBytes, kMaxSafetensorsHeaderBytes);
  if (length > static_cast<uint64_t>(most)) {
    return NoSafetensors(
        path, absl::StrCat("its header length is ", length, " bytes; expected ", most, " or less"));
  }
  std::string header_bytes(static_cast<size_t>(kLengthBytes) + length, '\0');
  if (absl::Status status =
          (*file)->ReadAt(0, absl::MakeSpan(&header_bytes[0], header_bytes.size()));
      !status.ok()) {
    return status;
  }
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(absl::string_view(header_bytes).substr(kLengthBytes),
                             bytes - static_cast<int64_t>(header_bytes.size()));
  if (!header.ok()) return NoSafetensors(path, header.status().message());
  return absl::WrapUnique(
      new SafetensorsReader(path, *std::move(file), std::move(header_bytes), *std::move(header)));
}

SafetensorsReader::SafetensorsReader(std::string path, std::unique_ptr<ReadableFile> file,
                                     std::string header_bytes, SafetensorsHeader header)
    : path_(std::move(path)),
      file_(std::move(file)),
      header_bytes_(std::move(header_bytes)),
      header_(std::move(header)) {}

absl::StatusOr<uint32_t> SafetensorsReader::Checksum() {
  uint32_t all = Crc32c(0, header_bytes_);
  crcs_.clear();
  crcs_.reserve(tensors().size());
  std::vector<char> buffer(static_cast<size_t>(std::min(kPieceBytes, bytes())));
  for (const TensorInfo& tensor : tensors()) {
    uint32_t crc = 0;
    for (int64_t begin = tensor.begin; begin < tensor.end; begin += kPieceBytes) {
      const size_t size = static_cast<size_t>(std::min(kPieceBytes, tensor.end - begin));
      if (absl::Status status = file_->ReadAt(static_cast<int64_t>(header_bytes_.size()) + begin,
                                              absl::MakeSpan(buffer.data(), size));
          !status.ok()) {
        return status;
      }
      crc = Crc32c(crc, absl::string_view(buffer.data(), size));
    }
    crcs_.push_back(crc);
    // For a small tensor, which is still in `buffer`, a second checksum is faster than
    // Crc32cCombine.
    const size_t bytes = static_cast<size_t>(tensor.end - tensor.begin);
    all = bytes < kSmallBytes ? Crc32c(all, absl::string_view(buffer.data(), bytes))
                              : Crc32cCombine(all, crc, bytes);
  }
  return all;
}

absl::Status SafetensorsReader::Read(size_t i, absl::Span<char> out) const {
  const TensorInfo& tensor = tensors()[i];
  TPS_CHECK(static_cast<int64_t>(out.size()) == tensor.end - tensor.begin, "the tensor fits");
  if (absl::Status status =
          file_->ReadAt(static_cast<int64_t>(header_bytes_.size()) + tensor.begin, out);
      !status.ok()) {
    return status;
  }
  if (!crcs_.empty() && Crc32c(0, absl::string_view(out.data(), out.size())) != crcs_[i]) {
    return absl::DataLossError(
        absl::StrCat(path_, " changed while it was read: tensor '", tensor.name, "'"));
  }
  if (absl::Status valid = CheckElements(tensor.dtype, absl::string_view(out.data(), out.size()));
      !valid.ok()) {
    return absl::DataLossError(
        absl::StrCat(path_, " is damaged: '", tensor.name, "' ", valid.message()));
  }
  return absl::OkStatus();
}

namespace {

// The tensors' data begins at a multiple of this many bytes, so that tensors in a mapped file are
// aligned.
constexpr int64_t kAlignment = 64;
// Append() gathers shorter pieces up to this size and writes them together.
constexpr size_t kGatheredBytes = 256 << 10;

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
  if (small_.size() + data.size() <= kGatheredBytes) {
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

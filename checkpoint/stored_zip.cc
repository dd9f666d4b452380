#include "checkpoint/stored_zip.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace torchps {
namespace {

// See PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16 and 4.5.3.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint16_t kVersion = 45;  // the first version with Zip64
constexpr uint16_t kZip64Field = 0x0001;
constexpr uint16_t kPaddingField = 0x4246;                   // "FB", like PyTorch's padding
constexpr uint16_t kDate = (1980 - 1980) << 9 | 1 << 5 | 1;  // constant, so that equal models give
                                                             // equal files
constexpr uint64_t kMax32 = 0xffffffff;
constexpr uint64_t kAlignment = 64;
constexpr size_t kLocalHeaderBytes = 30;
constexpr size_t kLocalCrcOffset = 14;
constexpr size_t kZip64FieldBytes = 20;
constexpr size_t kFieldHeaderBytes = 4;

void Put(std::string* out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(number >> (8 * i)));
}

uint32_t Clipped(uint64_t number) { return static_cast<uint32_t>(std::min(number, kMax32)); }

uint32_t Crc32(uint32_t crc, absl::string_view data) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoredZip>> StoredZip::Create(FileSystem* files, std::string path) {
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files->CreateFile(TemporaryPath(path));
  if (!file.ok()) return file.status();
  return absl::WrapUnique(new StoredZip(files, std::move(path), *std::move(file)));
}

StoredZip::StoredZip(FileSystem* files, std::string path, std::unique_ptr<WritableFile> file)
    : files_(files), path_(std::move(path)), file_(std::move(file)) {}

StoredZip::~StoredZip() {
  if (finished_) return;
  file_.reset();
  files_->RemoveFile(TemporaryPath(path_)).IgnoreError();
}

absl::Status StoredZip::BeginEntry(std::string name, uint64_t bytes) {
  if (absl::Status status = EndEntry(); !status.ok()) return status;
  const uint64_t begin = static_cast<uint64_t>(file_->size());
  const bool zip64 = bytes >= kMax32;
  std::string fields;
  if (zip64) {
    Put(&fields, kZip64Field, 2);
    Put(&fields, kZip64FieldBytes - kFieldHeaderBytes, 2);
    Put(&fields, bytes, 8);
    Put(&fields, bytes, 8);
  }
  const uint64_t head = kLocalHeaderBytes + name.size() + fields.size() + kFieldHeaderBytes;
  const uint64_t padding = (kAlignment - (begin + head) % kAlignment) % kAlignment;
  Put(&fields, kPaddingField, 2);
  Put(&fields, padding, 2);
  fields.append(padding, 'Z');

  std::string header;
  Put(&header, kLocalHeader, 4);
  Put(&header, kVersion, 2);
  Put(&header, 0, 2);  // flags
  Put(&header, 0, 2);  // not compressed
  Put(&header, 0, 2);  // time
  Put(&header, kDate, 2);
  Put(&header, 0, 4);  // CRC, set when the entry is complete
  Put(&header, zip64 ? kMax32 : bytes, 4);
  Put(&header, zip64 ? kMax32 : bytes, 4);
  Put(&header, name.size(), 2);
  Put(&header, fields.size(), 2);
  absl::StrAppend(&header, name, fields);
  entries_.push_back({std::move(name), bytes, begin, 0});
  written_ = 0;
  return file_->Append(header);
}

absl::Status StoredZip::Append(absl::string_view data) {
  written_ += data.size();
  TPS_CHECK(!entries_.empty() && written_ <= entries_.back().bytes, "bytes belong to an entry");
  entries_.back().crc = Crc32(entries_.back().crc, data);
  return file_->Append(data);
}

absl::Status StoredZip::AddEntry(std::string name, absl::string_view data) {
  if (absl::Status status = BeginEntry(std::move(name), data.size()); !status.ok()) return status;
  return Append(data);
}

absl::Status StoredZip::EndEntry() {
  if (entries_.empty()) return absl::OkStatus();
  const Entry& entry = entries_.back();
  TPS_CHECK(written_ == entry.bytes, "the entry is whole");
  std::string crc;
  Put(&crc, entry.crc, 4);
  return file_->WriteAt(static_cast<int64_t>(entry.begin + kLocalCrcOffset), crc);
}

absl::Status StoredZip::Finish() {
  if (absl::Status status = EndEntry(); !status.ok()) return status;
  const uint64_t begin = static_cast<uint64_t>(file_->size());
  std::string tail;
  for (const Entry& entry : entries_) {
    const bool large = entry.bytes >= kMax32;
    const bool far = entry.begin >= kMax32;
    std::string field;
    if (large || far) {
      Put(&field, kZip64Field, 2);
      Put(&field, (large ? 16u : 0u) + (far ? 8u : 0u), 2);
      if (large) {
        Put(&field, entry.bytes, 8);
        Put(&field, entry.bytes, 8);
      }
      if (far) Put(&field, entry.begin, 8);
    }
    Put(&tail, kCentralHeader, 4);
    Put(&tail, kVersion, 2);
    Put(&tail, kVersion, 2);
    Put(&tail, 0, 2);  // flags
    Put(&tail, 0, 2);  // not compressed
    Put(&tail, 0, 2);  // time
    Put(&tail, kDate, 2);
    Put(&tail, entry.crc, 4);
    Put(&tail, Clipped(entry.bytes), 4);
    Put(&tail, Clipped(entry.bytes), 4);
    Put(&tail, entry.name.size(), 2);
    Put(&tail, field.size(), 2);
    Put(&tail, 0, 2);  // comment
    Put(&tail, 0, 2);  // disk
    Put(&tail, 0, 2);  // internal attributes
    Put(&tail, 0, 4);  // external attributes
    Put(&tail, Clipped(entry.begin), 4);
    absl::StrAppend(&tail, entry.name, field);
  }
  const uint64_t central_bytes = tail.size();
  const bool zip64 = entries_.size() >= 0xffff || begin >= kMax32 || central_bytes >= kMax32;
  if (zip64) {
    Put(&tail, kZip64End, 4);
    Put(&tail, 44, 8);  // bytes that follow
    Put(&tail, kVersion, 2);
    Put(&tail, kVersion, 2);
    Put(&tail, 0, 4);
    Put(&tail, 0, 4);
    Put(&tail, entries_.size(), 8);
    Put(&tail, entries_.size(), 8);
    Put(&tail, central_bytes, 8);
    Put(&tail, begin, 8);
    Put(&tail, kZip64Locator, 4);
    Put(&tail, 0, 4);
    Put(&tail, begin + central_bytes, 8);
    Put(&tail, 1, 4);
  }
  const uint64_t count = std::min<uint64_t>(entries_.size(), 0xffff);
  Put(&tail, kEnd, 4);
  Put(&tail, 0, 2);
  Put(&tail, 0, 2);
  Put(&tail, count, 2);
  Put(&tail, count, 2);
  Put(&tail, Clipped(central_bytes), 4);
  Put(&tail, Clipped(begin), 4);
  Put(&tail, 0, 2);

  absl::Status status = file_->Append(tail);
  if (status.ok()) status = file_->Sync();
  if (absl::Status closed = file_->Close(); status.ok()) status = closed;
  if (status.ok()) status = files_->Rename(TemporaryPath(path_), path_);
  if (!status.ok()) return status;
  finished_ = true;
  return files_->SyncDirectory(ParentDirectory(path_));
}

}  // namespace torchps

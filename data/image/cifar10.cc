#include "data/image/cifar10.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/file/file_bytes.h"

namespace torchps {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kSide = 32;
constexpr int64_t kRecordBytes = 1 + kChannels * kSide * kSide;
constexpr int kClasses = 10;

absl::Status Append(const std::string& path, ImageSet& set) {
  absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": expected this file of CIFAR-10's binary version, got none (unpack "
        "cifar-10-binary.tar.gz and name its directory cifar-10-batches-bin with --data or "
        "data.path)"));
  }
  if (!bytes.ok()) return bytes.status();
  const int64_t size = bytes->size();
  if (size == 0 || size % kRecordBytes != 0) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected records of %d bytes, got %d bytes, which is %d records and "
                        "%d bytes (truncated or no "
                        "CIFAR-10 file)",
                        path, kRecordBytes, size, size / kRecordBytes, size % kRecordBytes));
  }
  for (int64_t at = 0; at < size; at += kRecordBytes) {
    const uint8_t label = (*bytes)[at];
    if (label >= kClasses) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: record %d: expected a label of 0 to %d, got %d", path,
                          at / kRecordBytes, kClasses - 1, label));
    }
    set.labels.push_back(label);
    set.pixels.insert(set.pixels.end(), bytes->begin() + at + 1,
                      bytes->begin() + at + kRecordBytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageSet> ReadCifar10(const std::string& directory,
                                     const std::vector<std::string>& files) {
  ImageSet set;
  set.channels = kChannels;
  set.height = kSide;
  set.width = kSide;
  for (const std::string& file : files) {
    if (absl::Status status = Append(absl::StrCat(directory, "/", file), set); !status.ok()) {
      return status;
    }
  }
  return set;
}

absl::StatusOr<ImageSet> ReadCifar10Train(const std::string& directory) {
  return ReadCifar10(directory, {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                 "data_batch_4.bin", "data_batch_5.bin"});
}

absl::StatusOr<ImageSet> ReadCifar10Test(const std::string& directory) {
  return ReadCifar10(directory, {"test_batch.bin"});
}

}  // namespace torchps

#include "torchps/data/image/image_sets.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "torchps/data/file/file_bytes.h"

namespace torchps {

namespace {

constexpr uint32_t kMaxSide = 4096;

// In the magic number, the third byte means "unsigned bytes"; the fourth is the number of
// dimensions.
uint32_t Magic(size_t dimensions) { return 0x0800 + dimensions; }

uint32_t BigEndian32(absl::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

template <size_t D>
struct IdxArray {
  std::array<uint32_t, D> sizes;
  std::vector<uint8_t> values;
};

template <size_t D>
absl::StatusOr<IdxArray<D>> ReadIdx(const std::string& path, absl::string_view what) {
  absl::StatusOr<std::string> bytes = ReadFileBytes(path);
  if (!bytes.ok()) return bytes.status();
  constexpr size_t kHeader = 4 + 4 * D;
  if (bytes->size() < kHeader) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected an IDX header of %d bytes, got %d (truncated)", path, kHeader,
                        bytes->size()));
  }
  if (BigEndian32(*bytes, 0) != Magic(D)) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected the magic number of IDX %s, 0x%08x, got 0x%08x", path, what,
                        Magic(D), BigEndian32(*bytes, 0)));
  }
  IdxArray<D> array;
  for (size_t d = 0; d < D; ++d) array.sizes[d] = BigEndian32(*bytes, 4 + 4 * d);
  // Check the sides first, so that the product below fits in 64 bits for any count.
  uint64_t expected = array.sizes[0];
  for (size_t d = 1; d < D; ++d) {
    if (array.sizes[d] < 1 || array.sizes[d] > kMaxSide) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected a side of 1 to %d pixels, got %d", path, kMaxSide, array.sizes[d]));
    }
    expected *= array.sizes[d];
  }
  if (bytes->size() - kHeader != expected) {
    return absl::DataLossError(absl::StrFormat(
        "%s: expected %d bytes for its %d %s, got %d%s", path, expected, array.sizes[0], what,
        bytes->size() - kHeader, bytes->size() - kHeader < expected ? " (truncated)" : ""));
  }
  array.values.assign(bytes->begin() + kHeader, bytes->end());
  return array;
}

// Returns the first existing file in `directory` among the usual spellings of an IDX file name.
absl::StatusOr<std::string> FindIdxFile(const std::string& directory, const std::string& stem,
                                        const std::string& type) {
  for (const char* dot : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      std::string path = absl::StrCat(directory, "/", stem, dot, type, suffix);
      if (access(path.c_str(), F_OK) == 0) return path;
    }
  }
  return absl::NotFoundError(absl::StrFormat(
      "%s: expected %s-%s or %s-%s.gz there, got neither (name the directory of the IDX files with "
      "--data or data.path; --download fetches MNIST's)",
      directory, stem, type, stem, type));
}

}  // namespace

absl::StatusOr<ImageSet> ReadIdxImages(const std::string& images_path,
                                       const std::string& labels_path) {
  absl::StatusOr<IdxArray<3>> images = ReadIdx<3>(images_path, "images");
  if (!images.ok()) return images.status();
  const uint32_t count = images->sizes[0];
  if (count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(images_path, ": expected at least one image, got none"));
  }
  ImageSet set;
  set.channels = 1;
  set.height = images->sizes[1];
  set.width = images->sizes[2];
  set.pixels = std::move(images->values);
  if (labels_path.empty()) {
    set.labels.resize(count);
    set.has_answers = false;
    return set;
  }
  absl::StatusOr<IdxArray<1>> labels = ReadIdx<1>(labels_path, "labels");
  if (!labels.ok()) return labels.status();
  if (labels->sizes[0] != count) {
    return absl::DataLossError(absl::StrFormat("%s: expected %d labels, as %s has images, got %d",
                                               labels_path, count, images_path, labels->sizes[0]));
  }
  set.labels = std::move(labels->values);
  return set;
}

absl::StatusOr<ImageSet> ReadIdxDirectory(const std::string& directory, const std::string& prefix) {
  absl::StatusOr<std::string> images = FindIdxFile(directory, prefix + "-images", "idx3-ubyte");
  if (!images.ok()) return images.status();
  absl::StatusOr<std::string> labels = FindIdxFile(directory, prefix + "-labels", "idx1-ubyte");
  if (!labels.ok()) return labels.status();
  return ReadIdxImages(*images, *labels);
}

namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kCifarSide = 32;
constexpr int64_t kRecordBytes = 1 + kChannels * kCifarSide * kCifarSide;
constexpr int kCifarClasses = 10;

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
    if (label >= kCifarClasses) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: record %d: expected a label of 0 to %d, got %d", path,
                          at / kRecordBytes, kCifarClasses - 1, label));
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
  set.height = kCifarSide;
  set.width = kCifarSide;
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

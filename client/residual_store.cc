#include "client/residual_store.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors_reader.h"
#include "checkpoint/safetensors_writer.h"
#include "storage/crc32c.h"

namespace torchps {
namespace {

constexpr char kFormat[] = "torchps residual";
constexpr char kTensor[] = "residual";
// The longest that the header can be is some 200 bytes.
constexpr int64_t kHeaderRoom = 512;

absl::string_view Bytes(absl::Span<const float> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// Of the numbers, and of what is said about them: a step that was mistaken for a later one would
// have what was sent already sent again.
std::string Checksum(uint32_t data_crc, const std::string& job_id, const std::string& slot,
                     const std::string& step) {
  return absl::StrFormat("%08x", Crc32c(data_crc, absl::StrCat(job_id, "/", slot, "/", step)));
}

}  // namespace

ResidualStore::ResidualStore(FileSystem* files, std::string directory, uint64_t job_id, SlotId slot)
    : files_(files),
      directory_(std::move(directory)),
      job_id_(job_id),
      slot_(slot),
      path_(absl::StrCat(directory_, "/residual-", slot)) {}

absl::Status ResidualStore::Save(Step step, absl::Span<const float> residual) {
  const absl::Status made = files_->CreateDirectories(directory_);
  if (!made.ok()) return made;
  auto writer = SafetensorsWriter::Create(files_, path_, kHeaderRoom);
  if (!writer.ok()) return writer.status();
  (*writer)->BeginTensor(kTensor, Dtype::kF32, {static_cast<int64_t>(residual.size())});
  const absl::Status written = (*writer)->Append(Bytes(residual));
  if (!written.ok()) return written;
  std::map<std::string, std::string> metadata = {{"format", kFormat},
                                                 {"job_id", absl::StrCat(job_id_)},
                                                 {"slot", absl::StrCat(slot_)},
                                                 {"step", absl::StrCat(step)}};
  metadata["crc32c"] =
      Checksum((*writer)->data_crc32c(), metadata["job_id"], metadata["slot"], metadata["step"]);
  return (*writer)->Finish(metadata).status();
}

absl::StatusOr<std::optional<ResidualStore::Saved>> ResidualStore::Load(int64_t elements) const {
  const auto reader = SafetensorsReader::Open(files_, path_);
  if (absl::IsNotFound(reader.status())) return std::nullopt;
  if (!reader.ok()) return reader.status();
  const auto damaged = [this](const auto&... words) {
    return absl::DataLossError(absl::StrCat(path_, ": ", words...));
  };
  std::map<std::string, std::string> metadata = (*reader)->metadata();
  if (metadata["format"] != kFormat) return damaged("no residual of a worker");
  if (metadata["job_id"] != absl::StrCat(job_id_) || metadata["slot"] != absl::StrCat(slot_)) {
    return std::nullopt;
  }
  const std::vector<TensorInfo>& tensors = (*reader)->tensors();
  if (tensors.size() != 1 || tensors[0].dtype != Dtype::kF32 ||
      tensors[0].end - tensors[0].begin != elements * static_cast<int64_t>(sizeof(float))) {
    return damaged("not one tensor of ", elements, " float32, as the model's trained part");
  }
  Saved saved;
  saved.residual.resize(elements);
  const absl::Span<char> bytes(reinterpret_cast<char*>(saved.residual.data()),
                               elements * sizeof(float));
  if (const absl::Status read = (*reader)->Read(0, bytes); !read.ok()) return read;
  const std::string crc = Checksum(Crc32c(0, Bytes(saved.residual)), metadata["job_id"],
                                   metadata["slot"], metadata["step"]);
  if (metadata["crc32c"] != crc || !absl::SimpleAtoi(metadata["step"], &saved.step)) {
    return damaged("its checksum is ", metadata["crc32c"], "; expected ", crc);
  }
  return saved;
}

absl::Status ResidualStore::Remove() {
  const absl::Status removed = files_->RemoveFile(path_);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace torchps

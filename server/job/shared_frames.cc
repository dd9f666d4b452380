#include "server/job/shared_frames.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"

namespace torchps {
namespace {

// From this size on, pushing a run of blocks takes one thread longer (some 100 us) than waking a
// second thread.
constexpr int64_t kElementsWorthHelp = (1 << 20) / sizeof(float);

}  // namespace

absl::Status SharedFrames::Push(const PushHeader& header, const SharedSegment& segment, bool copies,
                                PushBlock push) {
  if (!segments_->Has(segment, header.shared_buffer)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame refers to buffer ", header.shared_buffer,
                     " of the shared memory, which slot ", header.slot, " does not have"));
  }
  const std::vector<BlockId>& owned = map_->owned_by(server_index_);
  const auto first = std::lower_bound(owned.begin(), owned.end(), header.block);
  if (first == owned.end() || *first != header.block ||
      header.shared_blocks > owned.end() - first) {
    return absl::InvalidArgumentError(absl::StrCat("a frame refers to ", header.shared_blocks,
                                                   " blocks from block ", header.block,
                                                   " on, which this server does not own"));
  }
  if (!header.absent.empty() && header.shared_blocks > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame refers to ", header.shared_blocks,
        " blocks and contains a table of absent elements, which is allowed for one block only"));
  }
  Mutex mutex;
  absl::Status failure;
  const auto push_one = [&](size_t index) {
    {
      MutexLock lock(&mutex);
      if (!failure.ok()) return;
    }
    PushHeader one = header;
    one.block = first[index];
    const absl::Span<const float> values =
        segments_->Read(segment, map_->blocks()[one.block], header.shared_buffer);
    std::vector<grpc::Slice> slices;
    if (copies) {
      slices.emplace_back(values.data(), values.size() * sizeof(float));
    } else {
      slices.emplace_back(values.data(), values.size() * sizeof(float), grpc::Slice::STATIC_SLICE);
    }
    const absl::Status pushed = push(one, FramePayload(std::move(slices)));
    MutexLock lock(&mutex);
    failure.Update(pushed);
  };
  if (header.shared_blocks * map_->blocks()[*first].length < kElementsWorthHelp) {
    for (size_t index = 0; index < header.shared_blocks; ++index) push_one(index);
  } else {
    helper_.Run(header.shared_blocks, push_one);
  }
  return failure;
}

}  // namespace torchps

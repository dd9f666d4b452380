#include "torchps/worker/device/value_uploader.h"

#include <utility>

#include "torchps/common/check.h"

namespace torchps {

ValueUploader::ValueUploader(const Options& options)
    : options_(options), shares_(*options.block_map, options.least_copy_bytes) {
  TPS_CHECK(options_.staging.size() == options_.values.size(), "two vectors of different lengths");
}

absl::Status ValueUploader::Begin(absl::Span<const float> host) {
  TPS_CHECK(host.size() == options_.values.size(), "a pull of another length than the layout's");
  MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  status_ = options_.link->AwaitUps();
  if (status_.ok() && !std::exchange(has_begun_, true)) {
    // The memory of `staging` may have belonged to a freed tensor that a queued kernel still reads.
    absl::StatusOr<DeviceLink::Mark> made = options_.link->AfterCompute();
    if (made.ok()) is_free_ = *std::move(made);
    status_ = made.status();
  }
  host_ = host;
  has_landed_.assign(options_.block_map->blocks().size(), false);
  is_newer_ = has_landed_;
  missing_.clear();
  for (const BlockRun& share : shares_.shares()) {
    missing_.push_back(static_cast<int>(share.end - share.begin));
  }
  return status_;
}

void ValueUploader::Landed(BlockId block) {
  MutexLock lock(&mutex_);
  TPS_CHECK(host_.data() != nullptr, "a block has landed without a pull");
  const size_t share = shares_.share_of(block);
  is_newer_[block] = true;
  if (!has_landed_[block]) --missing_[share];
  has_landed_[block] = true;
  if (missing_[share] > 0 || !status_.ok()) return;
  for (const BlockRun& run : GetRuns(is_newer_, shares_.shares()[share]))
    status_.Update(CopyUp(run));
}

absl::Status ValueUploader::CopyUp(BlockRun blocks) {
  for (BlockId block = blocks.begin; block < blocks.end; ++block) is_newer_[block] = false;
  const ElementRun elements = GetElements(*options_.block_map, blocks);
  const int64_t length = elements.end - elements.begin;
  return options_.link->Up(is_free_, host_.subspan(elements.begin, length),
                           options_.staging.subspan(elements.begin, length));
}

absl::Status ValueUploader::TakeOver() {
  MutexLock lock(&mutex_);
  TPS_CHECK(host_.data() != nullptr, "there is no pull to take over");
  const BlockRun all{0, static_cast<BlockId>(has_landed_.size())};
  for (const BlockRun& run : GetRuns(is_newer_, all)) {
    if (status_.ok()) status_ = CopyUp(run);
  }
  host_ = {};
  if (!status_.ok()) return status_;
  const absl::StatusOr<DeviceLink::Mark> up = options_.link->AfterUps();
  status_ = up.ok() ? options_.link->ComputeAfter(*up) : up.status();
  for (const BlockRun& run : GetRuns(has_landed_, all)) {
    const ElementRun elements = GetElements(*options_.block_map, run);
    const int64_t length = elements.end - elements.begin;
    if (!status_.ok()) break;
    status_ = options_.link->CopyInCompute(options_.staging.subspan(elements.begin, length),
                                           options_.values.subspan(elements.begin, length));
  }
  if (!status_.ok()) return status_;
  absl::StatusOr<DeviceLink::Mark> taken = options_.link->AfterCompute();
  if (taken.ok()) is_free_ = *std::move(taken);
  status_ = taken.status();
  return status_;
}

const float* ValueUploader::host() const {
  MutexLock lock(&mutex_);
  return host_.data();
}

}  // namespace torchps

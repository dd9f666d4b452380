#include "server/data_leases.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace torchps {
namespace {

int64_t DivideRoundingUp(int64_t dividend, int64_t divisor) { return (dividend - 1) / divisor + 1; }

}  // namespace

DataLeases::DataLeases(Options options)
    : options_(options),
      pushes_left_(options.max_pushes > 0 ? options.max_pushes
                                          : std::numeric_limits<int64_t>::max()) {
  TPS_CHECK(options.samples > 0 && options.epochs > 0, "an epoch without samples");
  TPS_CHECK(options.lease_samples > 0 && options.push_samples > 0, "a lease without samples");
}

std::optional<DataLeases::Lease> DataLeases::Take(Holder holder) {
  Lease lease;
  if (!returned_.empty()) {
    lease.range = *returned_.begin();
    lease.reissued = true;
    returned_.erase(returned_.begin());
    epoch(lease.range.epoch).reissued += lease.range.size();
  } else {
    const std::optional<Range> range = NextNewRange();
    if (!range.has_value()) return std::nullopt;
    lease.range = *range;
  }
  lease.id = next_id_++;
  Epoch& books = epoch(lease.range.epoch);
  books.unissued -= lease.range.size();
  books.outstanding += lease.range.size();
  outstanding_.emplace(lease.id, Outstanding{lease.range, holder});
  return lease;
}

absl::StatusOr<DataLeases::Finished> DataLeases::Finish(uint64_t id, Holder holder) {
  if (id == 0 || id >= next_id_) {
    return absl::InvalidArgumentError(
        absl::StrCat("data lease ", id, " was never handed out (the last one is ", next_id_ - 1,
                     "): slot ", holder.slot, " cannot have finished it"));
  }
  const auto found = outstanding_.find(id);
  if (found == outstanding_.end() || !(found->second.holder == holder)) return Finished{};

  const Range range = found->second.range;
  outstanding_.erase(found);
  Epoch& books = epoch(range.epoch);
  books.outstanding -= range.size();
  books.used += range.size();
  return Finished{/*counted=*/true, range.epoch, Closed(books)};
}

int64_t DataLeases::Release(Holder holder) {
  int64_t samples = 0;
  for (auto it = outstanding_.begin(); it != outstanding_.end();) {
    if (!(it->second.holder == holder)) {
      ++it;
      continue;
    }
    const Range range = it->second.range;
    Epoch& books = epoch(range.epoch);
    books.outstanding -= range.size();
    books.unissued += range.size();
    samples += range.size();
    returned_.insert(range);
    it = outstanding_.erase(it);
  }
  return samples;
}

bool DataLeases::Complete() const {
  return Exhausted() && returned_.empty() && outstanding_.empty();
}

std::vector<DataLeases::Books> DataLeases::books() const {
  std::vector<Books> all;
  all.reserve(epochs_.size());
  for (const Epoch& epoch : epochs_) {
    Books books;
    books.epoch = static_cast<int>(all.size()) + 1;
    books.samples = options_.samples;
    books.used = epoch.used;
    books.outstanding = epoch.outstanding;
    books.unissued = epoch.unissued;
    books.reissued = epoch.reissued;
    books.closed = Closed(epoch);
    all.push_back(books);
  }
  return all;
}

bool DataLeases::Exhausted() const {
  if (pushes_left_ == 0) return true;
  return static_cast<int>(epochs_.size()) == options_.epochs &&
         epochs_.back().position == options_.samples;
}

bool DataLeases::Closed(const Epoch& epoch) const {
  // Whatever was handed out for the first time has been used, and no first time is to come.
  return epoch.used == epoch.position && (epoch.position == options_.samples || Exhausted());
}

std::optional<DataLeases::Range> DataLeases::NextNewRange() {
  if (Exhausted()) return std::nullopt;
  if (epochs_.empty() || epochs_.back().position == options_.samples) {
    Epoch next;
    next.unissued = options_.samples;
    epochs_.push_back(next);
  }
  Epoch& present = epochs_.back();
  int64_t length = std::min(options_.lease_samples, options_.samples - present.position);
  int64_t pushes = DivideRoundingUp(length, options_.push_samples);
  if (pushes > pushes_left_) {
    pushes = pushes_left_;
    length = pushes * options_.push_samples;
  }
  pushes_left_ -= pushes;
  const Range range{static_cast<int>(epochs_.size()), present.position, present.position + length};
  present.position += length;
  return range;
}

}  // namespace torchps

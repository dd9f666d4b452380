#include "torchps/server/coordinator/data_leases.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

int64_t DivideRoundingUp(int64_t dividend, int64_t divisor) { return (dividend - 1) / divisor + 1; }

DataRange ToProto(const DataLeases::Range& range) {
  DataRange proto;
  proto.set_epoch(range.epoch);
  proto.set_begin(range.begin);
  proto.set_end(range.end);
  return proto;
}

DataLeases::Range FromProto(const DataRange& proto) {
  return {proto.epoch(), proto.begin(), proto.end()};
}

// Returns the length of a lease from `available` consecutive samples. Shortens the lease by one or
// two samples if that avoids a push of a single sample, on which batch norm cannot train.
int64_t LeaseLength(DataLeases::Size size, int64_t available) {
  const int64_t most = size.push_samples * size.pushes;
  int64_t length = std::min(most, available);
  if (size.push_samples <= 2) return length;
  while (length > 1 && (length % size.push_samples == 1 || available - length == 1)) --length;
  return length;
}

// Same for a returned range. If pushes contain two samples, an odd range ends in a piece of three,
// because a piece of one would remain otherwise.
int64_t ReturnedLength(DataLeases::Size size, int64_t available) {
  if (size.push_samples != 2 || available % 2 == 0) return LeaseLength(size, available);
  if (available <= 3) return available;
  // Take an even piece that leaves at least three.
  return std::min(size.push_samples * size.pushes, available - 3);
}

// Adds a range that does not overlap `ranges`, joined with adjacent ranges.
void Join(DataLeases::Range range, std::set<DataLeases::Range>* ranges) {
  const auto after = ranges->lower_bound(range);
  if (after != ranges->begin()) {
    const auto before = std::prev(after);
    if (before->epoch == range.epoch && before->end == range.begin) {
      range.begin = before->begin;
      ranges->erase(before);
    }
  }
  if (after != ranges->end() && after->epoch == range.epoch && after->begin == range.end) {
    range.end = after->end;
    ranges->erase(after);
  }
  ranges->insert(range);
}

}  // namespace

DataLeases::DataLeases(Options options) : options_(options) {
  TPS_CHECK(options.samples > 0 && options.epochs > 0, "an epoch without samples");
}

std::optional<DataLeases::Lease> DataLeases::Take(SlotHolder holder, Size size) {
  TPS_CHECK(size.push_samples > 0 && size.pushes > 0, "a lease without samples");
  Lease lease;
  lease.progress_begin = Progress();
  if (!returned_.empty()) {
    lease.range = NextReturnedRange(size);
    lease.reissued = true;
  } else {
    const std::optional<Range> range = NextNewRange(size);
    if (!range.has_value()) return std::nullopt;
    lease.range = *range;
    if (range->begin >= LastStepBegin()) {
      lease.share = ShareBefore(range->end) - ShareBefore(range->begin);
    }
  }
  lease.progress_end = Progress();
  lease.id = next_id_++;
  Epoch& accounting = epoch(lease.range.epoch);
  accounting.unissued -= lease.range.size();
  accounting.outstanding += lease.range.size();
  outstanding_.emplace(lease.id, Outstanding{lease.range, holder});
  return lease;
}

absl::StatusOr<DataLeases::Finished> DataLeases::Finish(uint64_t id, SlotHolder holder,
                                                        absl::Span<const Part> lost) {
  if (id == 0 || id >= next_id_) {
    return absl::InvalidArgumentError(
        absl::StrCat("data lease ", id, " was never handed out (the last one is ", next_id_ - 1,
                     "): slot ", holder.slot, " cannot have finished it"));
  }
  const auto found = outstanding_.find(id);
  if (found == outstanding_.end() || !(found->second.holder == holder)) return Finished{};

  const Range range = found->second.range;
  int64_t lost_samples = 0, last_end = 0;
  for (const Part& part : lost) {
    if (part.begin < last_end || part.begin >= part.end || part.end > range.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slot ", holder.slot, " reports that positions ", part.begin, " to ", part.end,
          " of data lease ", id, " were lost; expected ranges in ascending order within its ",
          range.size(), " samples"));
    }
    last_end = part.end;
    lost_samples += part.end - part.begin;
  }
  outstanding_.erase(found);
  for (const Part& part : lost) {
    Join({range.epoch, range.begin + part.begin, range.begin + part.end}, &returned_);
  }
  Epoch& accounting = epoch(range.epoch);
  accounting.outstanding -= range.size();
  accounting.used += range.size() - lost_samples;
  accounting.unissued += lost_samples;
  accounting.lost += lost_samples;
  return Finished{/*counted=*/true, range.epoch, Closed(accounting)};
}

int64_t DataLeases::Release(SlotHolder holder) {
  int64_t samples = 0;
  for (auto it = outstanding_.begin(); it != outstanding_.end();) {
    if (!(it->second.holder == holder)) {
      ++it;
      continue;
    }
    const Range range = it->second.range;
    Epoch& accounting = epoch(range.epoch);
    accounting.outstanding -= range.size();
    accounting.unissued += range.size();
    samples += range.size();
    Join(range, &returned_);
    it = outstanding_.erase(it);
  }
  return samples;
}

int DataLeases::Stop() {
  const bool was_closed = epochs_.empty() || Closed(epochs_.back());
  stopped_ = true;
  return !was_closed && Closed(epochs_.back()) ? static_cast<int>(epochs_.size()) : 0;
}

bool DataLeases::Complete() const {
  return Exhausted() && returned_.empty() && outstanding_.empty();
}

std::vector<DataLeases::Books> DataLeases::accounting() const {
  std::vector<Books> all;
  all.reserve(epochs_.size());
  for (const Epoch& epoch : epochs_) {
    Books accounting;
    accounting.epoch = static_cast<int>(all.size()) + 1;
    accounting.samples = options_.samples;
    accounting.used = epoch.used;
    accounting.outstanding = epoch.outstanding;
    accounting.unissued = epoch.unissued;
    accounting.reissued = epoch.reissued;
    accounting.lost = epoch.lost;
    accounting.closed = Closed(epoch);
    all.push_back(accounting);
  }
  return all;
}

DataLeasesState DataLeases::Save() const {
  DataLeasesState state;
  state.set_next_id(next_id_);
  state.set_pushes(pushes_);
  for (const Epoch& epoch : epochs_) {
    DataLeasesState::Epoch& saved = *state.add_epoch();
    saved.set_used(epoch.used);
    saved.set_reissued(epoch.reissued);
    saved.set_lost(epoch.lost);
    saved.set_position(epoch.position);
  }
  for (const auto& [id, out] : outstanding_) {
    DataLeasesState::Outstanding& saved = *state.add_outstanding();
    saved.set_id(id);
    *saved.mutable_range() = ToProto(out.range);
    saved.set_slot(out.holder.slot);
    saved.set_incarnation(out.holder.incarnation);
  }
  for (const Range& range : returned_) *state.add_returned() = ToProto(range);
  return state;
}

absl::Status DataLeases::Restore(const DataLeasesState& state) {
  TPS_CHECK(epochs_.empty(), "counters are restored before leases are issued");
  const auto damaged = [](const auto&... words) {
    return absl::DataLossError(absl::StrCat("the saved data leases are invalid: ", words...));
  };
  if (state.epoch_size() > options_.epochs) {
    return damaged(state.epoch_size(), " epochs of ", options_.epochs);
  }
  if (state.next_id() == 0) return damaged("the next lease would be number 0");
  std::vector<Epoch> epochs;
  int64_t handed_out = 0;
  for (const DataLeasesState::Epoch& saved : state.epoch()) {
    Epoch epoch;
    epoch.used = saved.used();
    epoch.reissued = saved.reissued();
    epoch.lost = saved.lost();
    epoch.position = saved.position();
    if (saved.used() < 0 || saved.used() > saved.position() ||
        saved.position() > options_.samples || saved.reissued() < 0 || saved.lost() < 0) {
      return damaged("epoch ", epochs.size() + 1, " has used ", saved.used(), " of ",
                     saved.position(), " of ", options_.samples, " samples");
    }
    if (!epochs.empty() && epochs.back().position != options_.samples) {
      return damaged("epoch ", epochs.size() + 1, " began before the last one was handed out");
    }
    epoch.unissued = options_.samples - epoch.used;
    handed_out += epoch.position;
    epochs.push_back(epoch);
  }
  if (state.pushes() < 0 || state.pushes() > handed_out ||
      (handed_out > 0 && state.pushes() == 0)) {
    return damaged(handed_out, " samples were handed out for ", state.pushes(), " pushes");
  }

  // No position may occur twice in the outstanding and returned ranges.
  std::set<Range> seen;
  const auto check = [&](const Range& range) {
    if (range.epoch < 1 || range.epoch > static_cast<int>(epochs.size()) || range.begin < 0 ||
        range.begin >= range.end || range.end > epochs[range.epoch - 1].position) {
      return damaged("positions ", range.begin, " to ", range.end, " of epoch ", range.epoch,
                     " were never handed out");
    }
    const auto next = seen.insert(range);
    const bool overlaps_next = std::next(next.first) != seen.end() &&
                               std::next(next.first)->epoch == range.epoch &&
                               std::next(next.first)->begin < range.end;
    const bool overlaps_previous = next.first != seen.begin() &&
                                   std::prev(next.first)->epoch == range.epoch &&
                                   std::prev(next.first)->end > range.begin;
    if (!next.second || overlaps_next || overlaps_previous) {
      return damaged("positions ", range.begin, " to ", range.end, " of epoch ", range.epoch,
                     " are handed out twice");
    }
    return absl::OkStatus();
  };
  std::map<uint64_t, Outstanding> outstanding;
  for (const DataLeasesState::Outstanding& saved : state.outstanding()) {
    const Range range = FromProto(saved.range());
    if (absl::Status status = check(range); !status.ok()) return status;
    if (saved.id() == 0 || saved.id() >= state.next_id() ||
        !outstanding.emplace(saved.id(), Outstanding{range, {saved.slot(), saved.incarnation()}})
             .second) {
      return damaged("invalid data lease ", saved.id());
    }
    epochs[range.epoch - 1].outstanding += range.size();
    epochs[range.epoch - 1].unissued -= range.size();
  }
  std::set<Range> returned;
  std::vector<int64_t> back(epochs.size(), 0);
  for (const DataRange& saved : state.returned()) {
    const Range range = FromProto(saved);
    if (absl::Status status = check(range); !status.ok()) return status;
    Join(range, &returned);
    back[range.epoch - 1] += range.size();
  }
  for (size_t i = 0; i < epochs.size(); ++i) {
    const Epoch& epoch = epochs[i];
    if (epoch.used + epoch.outstanding + back[i] != epoch.position) {
      return damaged("of epoch ", i + 1, ", ", epoch.position, " samples were handed out, but ",
                     epoch.used, " are used, ", epoch.outstanding, " outstanding and ", back[i],
                     " returned");
    }
  }
  epochs_ = std::move(epochs);
  outstanding_ = std::move(outstanding);
  returned_ = std::move(returned);
  next_id_ = state.next_id();
  pushes_ = state.pushes();
  return absl::OkStatus();
}

bool DataLeases::Exhausted() const {
  if (stopped_ || (options_.max_pushes > 0 && pushes_ >= options_.max_pushes)) return true;
  return static_cast<int>(epochs_.size()) == options_.epochs &&
         epochs_.back().position == options_.samples;
}

bool DataLeases::Closed(const Epoch& epoch) const {
  // All handed-out positions are used, and new positions will not follow.
  return epoch.used == epoch.position && (epoch.position == options_.samples || Exhausted());
}

double DataLeases::Progress() const {
  if (epochs_.empty()) return 0;
  const auto passed = static_cast<double>(epochs_.size() - 1) +
                      static_cast<double>(epochs_.back().position) / options_.samples;
  const double by_samples = passed / options_.epochs;
  if (options_.max_pushes == 0) return by_samples;
  return std::min(1.0, std::max(by_samples, static_cast<double>(pushes_) / options_.max_pushes));
}

DataLeases::Range DataLeases::NextReturnedRange(Size size) {
  Range range = *returned_.begin();
  returned_.erase(returned_.begin());
  if (const int64_t length = ReturnedLength(size, range.size()); length < range.size()) {
    returned_.insert({range.epoch, range.begin + length, range.end});
    range.end = range.begin + length;
  }
  epoch(range.epoch).reissued += range.size();
  return range;
}

int64_t DataLeases::LastStepBegin() const {
  const int64_t step = options_.step_samples;
  const int64_t last = step == 0 ? 0 : options_.samples % step;
  const int64_t begin = options_.samples - last;
  return last == 1 && step > 2 && begin > 0 ? begin - 1 : begin;
}

int64_t DataLeases::ShareBefore(int64_t position) const {
  const int64_t begin = LastStepBegin();
  return (position - begin) * options_.step_samples / (options_.samples - begin);
}

bool DataLeases::LastStepIsOut() const {
  return HasLastStep() && !epochs_.empty() && epochs_.back().position == options_.samples;
}

std::optional<DataLeases::Range> DataLeases::NextNewRange(Size size) {
  if (Exhausted()) return std::nullopt;
  if (epochs_.empty() || epochs_.back().position == options_.samples) {
    Epoch next;
    next.unissued = options_.samples;
    epochs_.push_back(next);
  }
  Epoch& present = epochs_.back();
  const int64_t last_begin = LastStepBegin();
  const bool is_last_step = present.position >= last_begin;
  const int64_t available = (is_last_step ? options_.samples : last_begin) - present.position;
  if (is_last_step) {
    const int64_t share = DivideRoundingUp(size.push_samples * (options_.samples - last_begin),
                                           options_.step_samples);
    // Three or more samples can be split without leaving a single one, on which batch norm fails.
    size.push_samples = std::max(std::min<int64_t>(size.push_samples, 3), share);
  }
  int64_t length = LeaseLength(size, available);
  int64_t pushes = DivideRoundingUp(length, size.push_samples);
  if (options_.max_pushes > 0 && pushes > options_.max_pushes - pushes_) {
    pushes = options_.max_pushes - pushes_;
    length = pushes * size.push_samples;
  }
  pushes_ += pushes;
  const Range range{static_cast<int>(epochs_.size()), present.position, present.position + length};
  present.position += length;
  return range;
}

}  // namespace torchps

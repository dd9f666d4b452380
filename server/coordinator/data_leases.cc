#include "server/coordinator/data_leases.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

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

}  // namespace

DataLeases::DataLeases(Options options)
    : options_(options),
      pushes_left_(options.max_pushes > 0 ? options.max_pushes
                                          : std::numeric_limits<int64_t>::max()) {
  TPS_CHECK(options.samples > 0 && options.epochs > 0, "an epoch without samples");
  TPS_CHECK(options.lease_samples > 0 && options.push_samples > 0, "a lease without samples");
}

std::optional<DataLeases::Lease> DataLeases::Take(SlotHolder holder) {
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

absl::StatusOr<DataLeases::Finished> DataLeases::Finish(uint64_t id, SlotHolder holder) {
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

int64_t DataLeases::Release(SlotHolder holder) {
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

int DataLeases::Stop() {
  const bool was_closed = epochs_.empty() || Closed(epochs_.back());
  stopped_ = true;
  return !was_closed && Closed(epochs_.back()) ? static_cast<int>(epochs_.size()) : 0;
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

DataLeasesState DataLeases::Save() const {
  DataLeasesState state;
  state.set_next_id(next_id_);
  for (const Epoch& epoch : epochs_) {
    DataLeasesState::Epoch& saved = *state.add_epoch();
    saved.set_used(epoch.used);
    saved.set_reissued(epoch.reissued);
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
  TPS_CHECK(epochs_.empty(), "books are restored before any are kept");
  const auto damaged = [](const auto&... words) {
    return absl::DataLossError(absl::StrCat("the saved data leases make no sense: ", words...));
  };
  if (state.epoch_size() > options_.epochs) {
    return damaged(state.epoch_size(), " epochs of ", options_.epochs);
  }
  if (state.next_id() == 0) return damaged("the next lease would be number 0");
  std::vector<Epoch> epochs;
  int64_t pushes = 0;
  for (const DataLeasesState::Epoch& saved : state.epoch()) {
    Epoch epoch;
    epoch.used = saved.used();
    epoch.reissued = saved.reissued();
    epoch.position = saved.position();
    if (saved.used() < 0 || saved.used() > saved.position() ||
        saved.position() > options_.samples || saved.reissued() < 0) {
      return damaged("epoch ", epochs.size() + 1, " has used ", saved.used(), " of ",
                     saved.position(), " of ", options_.samples, " samples");
    }
    if (!epochs.empty() && epochs.back().position != options_.samples) {
      return damaged("epoch ", epochs.size() + 1, " began before the last one was handed out");
    }
    epoch.unissued = options_.samples - epoch.used;
    pushes += PushesUpTo(epoch.position);
    epochs.push_back(epoch);
  }
  if (options_.max_pushes > 0 && pushes > options_.max_pushes) {
    return damaged(pushes, " pushes were handed out, of ", options_.max_pushes);
  }

  // Nothing is both outstanding and back, or either of them twice.
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
                     " are out twice");
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
      return damaged("there cannot be a data lease ", saved.id());
    }
    epochs[range.epoch - 1].outstanding += range.size();
    epochs[range.epoch - 1].unissued -= range.size();
  }
  std::set<Range> returned;
  std::vector<int64_t> back(epochs.size(), 0);
  for (const DataRange& saved : state.returned()) {
    const Range range = FromProto(saved);
    if (absl::Status status = check(range); !status.ok()) return status;
    returned.insert(range);
    back[range.epoch - 1] += range.size();
  }
  for (size_t i = 0; i < epochs.size(); ++i) {
    const Epoch& epoch = epochs[i];
    if (epoch.used + epoch.outstanding + back[i] != epoch.position) {
      return damaged("of epoch ", i + 1, ", ", epoch.position, " samples were handed out, but ",
                     epoch.used, " are used, ", epoch.outstanding, " outstanding and ", back[i],
                     " back");
    }
  }
  epochs_ = std::move(epochs);
  outstanding_ = std::move(outstanding);
  returned_ = std::move(returned);
  next_id_ = state.next_id();
  if (options_.max_pushes > 0) pushes_left_ = options_.max_pushes - pushes;
  return absl::OkStatus();
}

int64_t DataLeases::PushesUpTo(int64_t position) const {
  // Every lease but an epoch's last is a whole one, and so is what max_pushes has cut off.
  const int64_t whole = position / options_.lease_samples;
  const int64_t rest = position % options_.lease_samples;
  return whole * DivideRoundingUp(options_.lease_samples, options_.push_samples) +
         (rest > 0 ? DivideRoundingUp(rest, options_.push_samples) : 0);
}

bool DataLeases::Exhausted() const {
  if (stopped_ || pushes_left_ == 0) return true;
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

#include "server/job/hosted_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/failpoint.h"

namespace torchps {
namespace {

// From here on a run of blocks takes a thread longer (some 100 us) than waking another one.
constexpr int64_t kElementsWorthHelp = (1 << 20) / sizeof(float);

// More steps than any job has; above it a step is a forgery. Sums of steps over all blocks of a
// server stay within 64 bits.
constexpr Step kMaxStep = int64_t{1} << 36;

absl::Status CheckStep(Step step) {
  if (step <= kMaxStep) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("step is ", step, "; expected at most ", kMaxStep));
}

int64_t PullBound(const ConsistencySpec& consistency) {
  return consistency.mode() == ConsistencySpec::SYNC ? 0 : consistency.staleness_bound();
}

void CopyHistogram(const IntegerHistogram& from, Histogram* to) {
  // Trailing empty buckets say nothing and would fill the report.
  int used = IntegerHistogram::kBuckets;
  while (used > 0 && from.buckets()[used - 1] == 0) --used;
  for (int i = 0; i < used; ++i) to->add_bucket(from.buckets()[i]);
  to->set_max(from.max());
  to->set_sum(from.sum());
  to->set_count(from.count());
}

}  // namespace

HostedJob::HostedJob(const JobSpec& spec, const HelloRequest& request, ModelLayout layout,
                     BlockMap map, const Clock* clock)
    : spec_(spec),
      layout_(std::move(layout)),
      map_(std::move(map)),
      job_id_(request.job_id()),
      server_index_(request.server_index()),
      clock_(clock),
      push_segments_(layout_),
      clocks_(absl::Seconds(spec.membership().lease_seconds())),
      pull_gate_(PullBound(spec.consistency())) {}

HostedJob::~HostedJob() {
  // Its continuations are this object's.
  if (journal_ != nullptr) journal_->Stop();
}

absl::Status HostedJob::Admit(const PushHeader& header) const {
  if (live_incarnation_[header.slot].load() == header.incarnation) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("incarnation ", header.incarnation, " of slot ",
                                         header.slot,
                                         " is not live at this server; say Hello again"));
}

absl::Status HostedJob::PushFrame(const PushHeader& header, const FramePayload& payload) {
  if (header.slot < 0 || header.slot >= kMaxSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot is ", header.slot, "; expected 0 to ", kMaxSlots - 1));
  }
  if (header.incarnation == 0) {
    return absl::InvalidArgumentError("incarnation is 0; expected at least 1");
  }
  if (header.step > 0 && header.weight == 0) {
    return absl::InvalidArgumentError("weight is 0; expected the number of samples");
  }
  if (const absl::Status possible = CheckStep(header.step); !possible.ok()) return possible;
  if (synchronous() && restored_.has_value()) {
    if (const absl::Status status = CatchUp(header); !status.ok()) return status;
  }
  const absl::Status pushed =
      header.shared_blocks > 0 ? PushShared(header) : PushBlock(header, payload);
  // In SYNC this frame may have completed the round that others wait for, whatever becomes of the
  // rest of its stream.
  if (synchronous() && header.step > 0) RaiseFloors();
  if (header.step > 0) ReachFailpoint(Failpoint::kPushApplied);
  return pushed;
}

absl::Status HostedJob::CatchUp(const PushHeader& header) {
  if (header.step <= policy_->completed_rounds() + 1) return absl::OkStatus();
  bool has_claimed = false;
  {
    MutexLock lock(&mutex_);
    const absl::Status live = clocks_.Renew(header.slot, header.incarnation, clock_->Now());
    if (!live.ok()) return live;
    clocks_.BeginPull(header.slot, header.step - 1);
    has_claimed = clocks_.slots().at(header.slot).clock >= header.step - 1;
  }
  // The policy has words for who was here before and is too far.
  if (!has_claimed) return absl::OkStatus();
  MembershipChanged();
  if (header.step <= policy_->completed_rounds() + 1) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("slot ", header.slot, " is at step ", header.step,
                                             " and this server, which was restored, at ",
                                             policy_->completed_rounds() + 1,
                                             ", until the other slots have come back to it"));
}

absl::Status HostedJob::PushBlock(const PushHeader& header, const FramePayload& payload) {
  const auto admission = [&] { return Admit(header); };
  return header.step == 0 ? store_->Initialize(header, payload, admission)
                          : store_->Push(header, payload, admission);
}

absl::Status HostedJob::PushShared(const PushHeader& header) {
  const std::shared_ptr<const SharedSegment> segment =
      push_segments_.Find(header.slot, header.incarnation);
  if (segment == nullptr) {
    // Whoever is not live any more is to say Hello again, and can share again then.
    if (absl::Status admitted = Admit(header); !admitted.ok()) return admitted;
    return absl::InvalidArgumentError(absl::StrCat(
        "slot ", header.slot, " pushed from shared memory, but shares none with this server"));
  }
  const std::vector<BlockId>& owned = map_.owned_by(server_index_);
  const auto first = std::lower_bound(owned.begin(), owned.end(), header.block);
  if (first == owned.end() || *first != header.block ||
      header.shared_blocks > owned.end() - first) {
    return absl::InvalidArgumentError(absl::StrCat("a frame refers to ", header.shared_blocks,
                                                   " blocks from block ", header.block,
                                                   " on, which this server does not have"));
  }
  Mutex mutex;
  absl::Status failure;
  const auto push = [&](size_t index) {
    {
      MutexLock lock(&mutex);
      if (!failure.ok()) return;
    }
    PushHeader one = header;
    one.block = first[index];
    const absl::Span<const float> values = push_segments_.Read(*segment, map_.blocks()[one.block]);
    std::vector<grpc::Slice> slices;
    slices.emplace_back(values.data(), values.size() * sizeof(float), grpc::Slice::STATIC_SLICE);
    const absl::Status pushed = PushBlock(one, FramePayload(std::move(slices)));
    MutexLock lock(&mutex);
    failure.Update(pushed);
  };
  if (header.shared_blocks * map_.blocks()[*first].length < kElementsWorthHelp) {
    for (size_t index = 0; index < header.shared_blocks; ++index) push(index);
  } else {
    helper_.Run(header.shared_blocks, push);
  }
  return failure;
}

HostedJob::ParkedId HostedJob::FinishPush(SlotId slot, Incarnation incarnation, Step step,
                                          PushDone done) {
  {
    MutexLock lock(&mutex_);
    // A slot that pushes is alive; one that was taken over meanwhile is refused by other calls.
    clocks_.Renew(slot, incarnation, clock_->Now()).IgnoreError();
  }
  ParkedId id = 0;
  {
    MutexLock lock(&mutex_);
    id = ++last_finished_push_;
    FinishedPush& push = finished_pushes_[id];
    push = {slot, incarnation, step, std::move(done), /*round=*/0};
    if (synchronous() && rounds_.value() < step) {
      push.round = rounds_.WhenAtLeast(step, [this, id] { AwaitJournal(id); });
      return id;
    }
  }
  AwaitJournal(id);
  return id;
}

void HostedJob::AwaitJournal(ParkedId push) {
  if (journal_ == nullptr) {
    Answer(push);
  } else {
    // All that was recorded so far, so that a repeat is answered no sooner than the push itself.
    journal_->WhenDurable([this, push] { Answer(push); });
  }
}

void HostedJob::Answer(ParkedId id) {
  FinishedPush push;
  {
    MutexLock lock(&mutex_);
    const auto it = finished_pushes_.find(id);
    if (it == finished_pushes_.end()) return;
    push = std::move(it->second);
    finished_pushes_.erase(it);
  }
  PushReply reply;
  if (push.step > 0) {
    const absl::Status acknowledged =
        store_->Acknowledge(push.slot, push.incarnation, push.step, &reply);
    if (!acknowledged.ok()) {
      push.done(acknowledged);
      return;
    }
  }
  {
    MutexLock lock(&mutex_);
    // A slot that has been taken over meanwhile has its own clock.
    const auto it = clocks_.slots().find(push.slot);
    if (it != clocks_.slots().end() && it->second.incarnation == push.incarnation) {
      clocks_.Advance(push.slot, push.step);
      reply.set_clock(it->second.clock);
    }
    ++figures_[push.slot].pushes;
  }
  RaiseFloors();
  ReachFailpoint(Failpoint::kPushAnswered);
  push.done(reply);
}

void HostedJob::RaiseFloors() {
  std::vector<RisingNumber::Continuation> due;
  {
    MutexLock lock(&mutex_);
    const int64_t floor = synchronous() ? policy_->completed_rounds() : clocks_.floor();
    due = rounds_.RaiseTo(floor);
    for (RisingNumber::Continuation& pull : pull_gate_.RaiseFloor(floor)) {
      due.push_back(std::move(pull));
    }
  }
  for (const RisingNumber::Continuation& continuation : due) continuation();
}

absl::StatusOr<HostedJob::ParkedId> HostedJob::Pull(SlotId slot, Incarnation incarnation,
                                                    Step claimed, bool ahead, PullDone done) {
  if (const absl::Status possible = CheckStep(claimed); !possible.ok()) return possible;
  const absl::Duration arrived = clock_->Now();
  Step clock = 0;
  bool jumped = false;
  {
    MutexLock lock(&mutex_);
    const absl::Status live = clocks_.Renew(slot, incarnation, arrived);
    if (!live.ok()) return live;
    const Step recorded = clocks_.slots().at(slot).clock;
    clock = clocks_.BeginPull(slot, claimed, ahead);
    jumped = clocks_.slots().at(slot).clock > recorded;
  }
  if (jumped) {
    // Another server was further when this slot entered: rounds up to its clock do without it.
    MembershipChanged();
  } else {
    RaiseFloors();
  }
  {
    MutexLock lock(&mutex_);
    if (!pull_gate_.MayPull(clock)) {
      ++figures_[slot].parked_pulls;
      return pull_gate_.Park(clock, [this, slot, clock, arrived, done = std::move(done)] {
        done(Grant(slot, clock, clock_->Now() - arrived));
      });
    }
  }
  done(Grant(slot, clock, absl::ZeroDuration()));
  return ParkedId{0};
}

HostedJob::PullGrant HostedJob::Grant(SlotId slot, Step clock, absl::Duration parked) {
  MutexLock lock(&mutex_);
  clock_gap_.Add(clock - pull_gate_.floor());
  figures_[slot].parked += parked;
  return {pull_gate_.floor(), parked};
}

HostedJob::PullGrant HostedJob::ReadOnlyPull() const {
  MutexLock lock(&mutex_);
  return {pull_gate_.floor(), absl::ZeroDuration()};
}

void HostedJob::CancelPull(ParkedId id) {
  MutexLock lock(&mutex_);
  pull_gate_.Cancel(id);
}

void HostedJob::CancelPush(ParkedId id) {
  FinishedPush forgotten;
  MutexLock lock(&mutex_);
  const auto it = finished_pushes_.find(id);
  if (it == finished_pushes_.end()) return;
  if (it->second.round != 0) rounds_.Cancel(it->second.round);
  forgotten = std::move(it->second);
  finished_pushes_.erase(it);
}

void HostedJob::Describe(bool include_ledger, ServerStatus* status) {
  store_->Describe(include_ledger, status);
  const ParameterStore::Counters counters = store_->counters();
  status->set_job_id(job_id_);
  status->set_job_name(spec_.name());
  status->set_server_index(server_index_);
  status->set_server_count(map_.servers());
  status->set_initialized(store_->initialized());
  *status->mutable_verdicts() = counters.verdicts;
  CopyHistogram(counters.lag, status->mutable_lag());
  if (storage_ != nullptr) storage_->Describe(status->mutable_durability());

  MutexLock lock(&mutex_);
  status->set_floor(pull_gate_.floor());
  status->set_parked_now(pull_gate_.parked());
  CopyHistogram(clock_gap_, status->mutable_clock_gap());
  for (const auto& [slot, state] : clocks_.slots()) {
    if (state.incarnation == 0) continue;
    const SlotFigures& figures = figures_[slot];
    SlotStatus* const row = status->add_slot();
    row->set_slot(slot);
    row->set_incarnation(state.incarnation);
    row->set_live(state.live);
    row->set_shared_memory(push_segments_.Find(slot, state.incarnation) != nullptr);
    row->set_clock(state.clock);
    row->set_pushes(figures.pushes);
    row->set_parked_pulls(figures.parked_pulls);
    row->set_parked_seconds(absl::ToDoubleSeconds(figures.parked));
  }
}

}  // namespace torchps

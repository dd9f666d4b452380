#include "server/hosted_job.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/failpoint.h"
#include "proto/job_difference.h"
#include "proto/job_spec.h"
#include "proto/layout_codec.h"
#include "proto/shared_offer.h"
#include "server/async_push.h"
#include "server/sync_push.h"

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

// A job that this machine cannot hold is refused in words, before the kernel ends the process that
// tries.
absl::Status CheckMemory(const BlockMap& map, int server, bool synchronous,
                         const BlockUpdater& updater) {
  int64_t needed = 0;
  for (const BlockId id : map.owned_by(server)) {
    const BlockRange& block = map.blocks()[id];
    needed += updater.StateBytes(block);
    // The gradients of a round are summed up in one more array.
    if (synchronous) needed += block.length * static_cast<int64_t>(sizeof(float));
  }
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (needed <= machine) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the job's blocks take ", needed >> 20, " MiB of memory on this server, whose machine has ",
      machine >> 20, " MiB; use more servers"));
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

absl::StatusOr<std::unique_ptr<HostedJob>> HostedJob::Create(const HelloRequest& request,
                                                             const Clock* clock,
                                                             JobStorage* storage) {
  // A Hello that would be refused must not decide what this server works for. To clocks that know
  // nobody only a slot that no worker can have is wrong.
  const absl::Status slot =
      SlotClocks(absl::ZeroDuration()).CheckEntry(request.slot(), request.incarnation());
  if (!slot.ok()) return slot;
  const absl::StatusOr<JobSpec> spec = NormalizeJobSpec(request.job());
  if (!spec.ok()) return spec.status();
  absl::StatusOr<ModelLayout> layout = DecodeLayout(request.layout());
  if (!layout.ok()) return layout.status();
  if (request.server_index() < 0 || request.server_index() >= request.server_count()) {
    return absl::InvalidArgumentError(absl::StrCat("server_index is ", request.server_index(),
                                                   "; expected 0 to ", request.server_count() - 1));
  }
  absl::StatusOr<BlockMap> map =
      BlockMap::Create(*layout, spec->wire().block_bytes(), request.server_count());
  if (!map.ok()) return map.status();
  absl::StatusOr<std::unique_ptr<BlockUpdater>> updater =
      BlockUpdater::Create(spec->optimizer(), *layout, *map);
  if (!updater.ok()) return updater.status();
  const absl::Status fits = CheckMemory(
      *map, request.server_index(), spec->consistency().mode() == ConsistencySpec::SYNC, **updater);
  if (!fits.ok()) return fits;

  auto job =
      absl::WrapUnique(new HostedJob(*spec, request, *std::move(layout), *std::move(map), clock));
  job->updater_ = *std::move(updater);
  const size_t owned = job->map_.owned_by(job->server_index_).size();
  if (job->synchronous()) {
    job->policy_ =
        std::make_unique<SyncPush>(job->map_.blocks().size(), owned,
                                   spec->consistency().backup_workers(), job->updater_.get());
  } else {
    job->policy_ = std::make_unique<AsyncPush>(spec->consistency().lag(), job->updater_.get());
  }
  job->store_ = std::make_unique<ParameterStore>(job->layout_, job->map_, job->server_index_,
                                                 job->updater_.get(), job->policy_.get());
  if (storage != nullptr) {
    if (const absl::Status restored = job->RestoreFrom(storage); !restored.ok()) return restored;
  }
  return job;
}

absl::Status HostedJob::RestoreFrom(JobStorage* storage) {
  storage_ = storage;
  absl::StatusOr<std::optional<JobStorage::Origin>> origin =
      storage->Open({spec_, job_id_, layout_, map_, server_index_, *updater_}, store_.get());
  if (!origin.ok()) return origin.status();
  journal_ = storage->journal();
  store_->SetJournal(journal_);
  restored_ = *origin;
  if (!restored_.has_value()) return absl::OkStatus();
  store_->FinishRestore();
  {
    MutexLock lock(&mutex_);
    for (const auto& [slot, history] : store_->Histories()) {
      clocks_.Expect(slot, history.clock, history.incarnation, clock_->Now());
    }
  }
  MembershipChanged();
  return absl::OkStatus();
}

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

absl::Status HostedJob::CheckSame(const HelloRequest& request) const {
  if (request.job_id() != job_id_) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server already works for job '", spec_.name(),
                     "'; start fresh servers for another job, or stop this one first"));
  }
  const absl::Status same_spec =
      CheckSameJob(spec_, request.job(), "the running job", "this worker");
  if (!same_spec.ok()) return same_spec;
  const absl::StatusOr<ModelLayout> layout = DecodeLayout(request.layout());
  if (!layout.ok()) return layout.status();
  const absl::Status same_layout = layout_.CheckSame(*layout, "the running job", "this worker");
  if (!same_layout.ok()) return same_layout;
  if (request.server_index() != server_index_ || request.server_count() != map_.servers()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this server is number ", server_index_, " of ", map_.servers(),
        " in the running job; the worker took it for number ", request.server_index(), " of ",
        request.server_count(), ". Give all workers the same --servers list in the same order"));
  }
  return absl::OkStatus();
}

absl::Status HostedJob::Enter(SlotId slot, Incarnation incarnation, HelloReply* reply) {
  {
    MutexLock membership(&membership_mutex_);
    {
      MutexLock lock(&mutex_);
      const absl::Status entry = clocks_.CheckEntry(slot, incarnation);
      if (!entry.ok()) return entry;
    }
    live_incarnation_[slot].store(incarnation);
    Step last_step = 0;
    Step own_step = 0;
    for (const LedgerEntry& entry : store_->EntriesOf(slot)) {
      last_step = std::max(last_step, entry.last_step);
      if (entry.incarnation == incarnation) own_step = std::max(own_step, entry.last_step);
    }
    MutexLock lock(&mutex_);
    if (synchronous()) own_step = std::max(own_step, pull_gate_.floor());
    clocks_.Enter(slot, incarnation, own_step, clock_->Now());
    reply->set_floor(synchronous() ? pull_gate_.floor() : clocks_.floor());
    reply->set_last_step(last_step);
  }
  MembershipChanged();
  reply->set_initialized(store_->initialized());
  if (restored_.has_value()) {
    Restored* const restored = reply->mutable_restored();
    restored->set_checkpoint(restored_->checkpoint);
    restored->set_from_log(restored_->from_log);
    for (const LedgerEntry& entry : store_->EntriesOf(slot)) {
      // What another process made is not this one's, whatever its number.
      restored->add_block_step(entry.incarnation == incarnation ? entry.last_step : 0);
      restored->add_slot_step(entry.last_step);
    }
  }
  return absl::OkStatus();
}

void HostedJob::Share(const HelloRequest& request, HelloReply* reply) {
  if (spec_.wire().shared_memory() && request.has_shared_memory()) {
    const absl::Status opened = push_segments_.Open(request.slot(), request.incarnation(),
                                                    DecodeOffer(request.shared_memory()));
    // A worker in another container, or another user's, goes through the network.
    if (!opened.ok()) return;
    if (const absl::StatusOr<const SharedSegment*> values = store_->Share(); values.ok()) {
      *reply->mutable_shared_memory() = EncodeOffer((*values)->offer());
      return;
    }
  }
  push_segments_.Close(request.slot(), request.incarnation());
}

absl::Status HostedJob::Renew(SlotId slot, Incarnation incarnation) {
  MutexLock lock(&mutex_);
  return clocks_.Renew(slot, incarnation, clock_->Now());
}

void HostedJob::Leave(SlotId slot, Incarnation incarnation) {
  if (slot < 0 || slot >= kMaxSlots) return;
  push_segments_.Close(slot, incarnation);
  {
    MutexLock membership(&membership_mutex_);
    Incarnation expected = incarnation;
    live_incarnation_[slot].compare_exchange_strong(expected, 0);
    MutexLock lock(&mutex_);
    clocks_.Leave(slot, incarnation);
  }
  MembershipChanged();
}

void HostedJob::ExpireLeases() {
  bool any = false;
  {
    MutexLock membership(&membership_mutex_);
    MutexLock lock(&mutex_);
    for (const SlotId slot : clocks_.Expire(clock_->Now())) {
      push_segments_.Close(slot, live_incarnation_[slot].exchange(0));
      any = true;
    }
  }
  if (any) MembershipChanged();
}

void HostedJob::MembershipChanged() {
  {
    MutexLock membership(&membership_mutex_);
    std::vector<LiveSlot> live;
    {
      MutexLock lock(&mutex_);
      for (const auto& [slot, state] : clocks_.slots()) {
        if (state.live) live.push_back({slot, state.clock});
      }
    }
    store_->SetLive(live);
  }
  RaiseFloors();
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

BlockJournal::RoomId HostedJob::WhenRoom(std::function<void()> continuation) {
  return journal_ == nullptr ? 0 : journal_->WhenRoom(std::move(continuation));
}

void HostedJob::CancelRoom(BlockJournal::RoomId id) {
  if (journal_ != nullptr) journal_->CancelRoom(id);
}

void HostedJob::Describe(bool include_ledger, ServerStatus* status) {
  store_->Describe(include_ledger, status);
  const ParameterStore::Counters counters = store_->counters();
  status->set_job_id(job_id_);
  status->set_job_name(spec_.name());
  status->set_server_index(server_index_);
  status->set_server_count(map_.servers());
  status->set_initialized(store_->initialized());
  status->set_accepted(counters.accepted);
  status->set_scaled(counters.scaled);
  status->set_admitted(counters.admitted);
  status->set_rejected(counters.rejected);
  status->set_late(counters.late);
  status->set_withheld(counters.withheld);
  status->set_duplicates(counters.duplicates);
  status->set_acknowledged(counters.acknowledged);
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

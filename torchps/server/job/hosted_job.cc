#include "torchps/server/job/hosted_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/process/failpoint.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/job/local_steps.h"
#include "torchps/server/job/slot_clocks.h"
#include "torchps/transport/shared_layout.h"

namespace torchps {
namespace {

// More steps than any job has; a higher step is forged. Sums of steps over a server's blocks fit in
// 64 bits.
constexpr Step kMaxStep = int64_t{1} << 36;

absl::Status CheckStep(Step step) {
  if (step >= 0 && step <= kMaxStep) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("step is ", step, "; expected 0 to ", kMaxStep));
}

int64_t PullBound(const ConsistencySpec& consistency) {
  if (AppliesEachPush(consistency)) return consistency.staleness_bound();
  // With WHOLE_BATCH the policy checks the bound when a gradient arrives.
  return HasRounds(consistency) ? 0 : PullGate::kNoBound;
}

void CopyHistogram(const IntegerHistogram& from, Histogram* to) {
  // Drops trailing empty buckets to keep the report short.
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
  // Checks the slot first, so that a Hello with an invalid slot does not decide this server's job.
  // Empty SlotClocks reject invalid slots only.
  const absl::Status slot =
      SlotClocks(absl::ZeroDuration()).CheckEntry(request.slot(), request.incarnation());
  if (!slot.ok()) return slot;
  absl::StatusOr<JobParts> parts = MakeJobParts(request, clock);
  if (!parts.ok()) return parts.status();
  auto job = absl::WrapUnique(new HostedJob(*std::move(parts), clock));
  if (storage != nullptr) {
    const absl::Status restored = job->RestoreFrom(storage, request);
    if (!restored.ok()) return restored;
  }
  return job;
}

HostedJob::HostedJob(JobParts parts, const Clock* clock)
    : parts_(std::move(parts)),
      most_samples_(MostSamplesOfPush(parts_.spec)),
      clock_(clock),
      push_segments_(parts_.layout),
      shared_frames_(&push_segments_, &parts_.map, parts_.server_index),
      membership_(parts_, &push_segments_, clock),
      activity_(clock),
      finished_pushes_(this),
      pull_gate_(PullBound(parts_.spec.consistency())) {}

HostedJob::~HostedJob() {
  // Stops the journal now, because its continuations use this object.
  if (journal_ != nullptr) journal_->Stop();
}

absl::Status HostedJob::RestoreFrom(JobStorage* storage, const HelloRequest& request) {
  storage_ = storage;
  absl::StatusOr<std::optional<JobStorage::Origin>> origin =
      storage->Open({spec(), job_id(), layout(), map(), server_index(), *parts_.updater,
                     parts_.resumed_checkpoint, request.incarnation(), request.continues()},
                    parts_.store.get());
  if (!origin.ok()) return origin.status();
  journal_ = storage->journal();
  parts_.store->SetJournal(journal_);
  finished_pushes_.SetJournal(journal_);
  restored_ = *origin;
  if (!restored_.has_value()) return absl::OkStatus();
  parts_.store->snapshot().FinishRestore();
  membership_.ExpectRestored();
  RaiseMinClocks();
  return absl::OkStatus();
}

absl::Status HostedJob::Enter(SlotId slot, Incarnation incarnation, HelloReply* reply) {
  const absl::StatusOr<JobMembership::Entry> entry = membership_.Enter(slot, incarnation);
  if (!entry.ok()) return entry.status();
  activity_.RecordCall(slot);
  RaiseMinClocks();
  reply->set_min_clock(entry->min_clock);
  reply->set_last_step(entry->last_step);
  reply->set_initialized(parts_.store->initialized());
  if (restored_.has_value()) {
    Restored* const restored = reply->mutable_restored();
    restored->set_checkpoint(restored_->checkpoint);
    restored->set_from_log(restored_->from_log);
    for (const LedgerEntry& known : parts_.store->GetEntries(slot)) {
      // Reports 0 for a step that another incarnation pushed, even if the numbers match.
      restored->add_block_step(known.incarnation == incarnation ? known.last_step : 0);
      restored->add_slot_step(known.last_step);
    }
  }
  return absl::OkStatus();
}

void HostedJob::Share(const HelloRequest& request, HelloReply* reply) {
  if (spec().wire().shared_memory() && request.has_shared_memory()) {
    const absl::Status opened = push_segments_.Open(request.slot(), request.incarnation(),
                                                    DecodeOffer(request.shared_memory()));
    // A worker in another container, or of another user, uses the network.
    if (!opened.ok()) return;
    if (const absl::StatusOr<const SharedSegment*> values = parts_.store->Share(); values.ok()) {
      *reply->mutable_shared_memory() = EncodeOffer((*values)->offer());
      return;
    }
  }
  push_segments_.Close(request.slot(), request.incarnation());
}

absl::StatusOr<RenewReply> HostedJob::Renew(SlotId slot, Incarnation incarnation,
                                            absl::Duration stalled_for) {
  if (absl::Status renewed = membership_.Renew(slot, incarnation); !renewed.ok()) return renewed;
  activity_.Says(slot, stalled_for);
  RenewReply reply;
  reply.set_min_clock(membership_.min_clock());
  reply.set_max_version(parts_.store->highest_version());
  if (!AnyWaits()) return reply;
  if (const auto behind = membership_.FurthestBehind(activity_); behind.has_value()) {
    reply.mutable_waited_for()->set_slot(behind->slot);
    reply.mutable_waited_for()->set_seconds(absl::ToDoubleSeconds(behind->silence));
  }
  return reply;
}

bool HostedJob::AnyWaits() const {
  MutexLock lock(&mutex_);
  return pull_gate_.parked() > 0 || finished_pushes_.AnyUnsettled();
}

void HostedJob::Leave(SlotId slot, Incarnation incarnation) {
  membership_.Leave(slot, incarnation);
  RaiseMinClocks();
}

void HostedJob::End(SlotId slot, Incarnation incarnation) {
  membership_.End(slot, incarnation);
  RaiseMinClocks();
}

void HostedJob::ExpireLeases() {
  if (membership_.ExpireLeases()) RaiseMinClocks();
}

void HostedJob::MakeDueUpdates() {
  if (parts_.policy->TakeDue()) {
    parts_.store->Reconsider();
    RaiseMinClocks();
    return;
  }
  {
    // `wake_` may have caused this call a little too early, so AnnounceDue() must announce the time
    // again.
    MutexLock lock(&mutex_);
    announced_due_ = absl::InfiniteDuration();
  }
  AnnounceDue();
}

void HostedJob::AnnounceDue() {
  if (wake_ == nullptr) return;
  const absl::Duration due = parts_.policy->next_due();
  {
    MutexLock lock(&mutex_);
    if (due == announced_due_) return;
    announced_due_ = due;
  }
  if (due < absl::InfiniteDuration()) wake_(due - clock_->Now());
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
  if (const uint32_t samples = std::max(header.weight, header.share); samples > most_samples_) {
    return absl::InvalidArgumentError(absl::StrCat(
        samples > header.weight ? "share" : "weight", " is ", samples, "; expected at most ",
        most_samples_, ", the most samples of one push in this job"));
  }
  if (const absl::Status possible = CheckStep(header.step); !possible.ok()) return possible;
  if (parts_.has_rounds() && restored_.has_value()) {
    if (const absl::Status status = CatchUp(header); !status.ok()) return status;
  }
  const absl::Status pushed =
      header.shared_blocks > 0 ? PushShared(header) : PushBlock(header, payload);
  if (pushed.ok()) activity_.RecordCall(header.slot);
  // This frame may have completed an update that other slots wait for, even if the stream fails
  // later.
  if (parts_.collects_pushes() && header.step > 0) RaiseMinClocks();
  if (header.step > 0) ReachFailpoint(Failpoint::kPushApplied);
  return pushed;
}

absl::Status HostedJob::CatchUp(const PushHeader& header) {
  const auto is_next = [&] { return header.step <= parts_.policy->completed_rounds() + 1; };
  if (is_next()) return absl::OkStatus();
  const absl::StatusOr<JobMembership::PullClock> claim =
      membership_.BeginPull(header.slot, header.incarnation, header.step - 1, /*ahead=*/false);
  if (!claim.ok()) return claim.status();
  RaiseMinClocks();
  // If the claim was not recorded, the slot has pulled here before and is too far ahead. The policy
  // then refuses the frame.
  if (claim->recorded < header.step - 1 || is_next()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "slot ", header.slot, " is at step ", header.step, ", but this restored server is at step ",
      parts_.policy->completed_rounds() + 1, " until the other slots return"));
}

absl::Status HostedJob::PushBlock(const PushHeader& header, const FramePayload& payload) {
  const auto admission = [&] { return membership_.Admit(header.slot, header.incarnation); };
  return header.step == 0 ? parts_.store->Initialize(header, payload, admission)
                          : parts_.store->Push(header, payload, admission);
}

absl::Status HostedJob::PushShared(const PushHeader& header) {
  const std::shared_ptr<const SharedSegment> segment =
      push_segments_.Find(header.slot, header.incarnation);
  if (segment == nullptr) {
    // An incarnation that is not live must send Hello again, which may also share its memory again.
    const absl::Status admitted = membership_.Admit(header.slot, header.incarnation);
    if (!admitted.ok()) return admitted;
    return absl::InvalidArgumentError(absl::StrCat(
        "slot ", header.slot, " pushed from shared memory, but shares none with this server"));
  }
  // A gradient is read twice, to apply and to record it, and a faulty worker may write to it in
  // between. So both read a copy. If pushes are collected, the log records their mean instead, and
  // no copy is needed.
  const bool keeps_gradients = journal_ != nullptr && !parts_.collects_pushes();
  return shared_frames_.Push(header, *segment, keeps_gradients,
                             [this](const PushHeader& one, const FramePayload& payload) {
                               return PushBlock(one, payload);
                             });
}

HostedJob::ParkedId HostedJob::FinishPush(SlotId slot, Incarnation incarnation, Step step,
                                          PushDone done, std::vector<BlockId> part) {
  // A push renews the lease. If another incarnation holds the slot, other calls report it.
  membership_.Renew(slot, incarnation).IgnoreError();
  const absl::Duration now = clock_->Now();
  absl::Duration usual_step;
  // A delayed repeat does not end a step, because the slot may have pulled again since.
  bool ends_step = false;
  {
    MutexLock lock(&mutex_);
    std::pair<Incarnation, Step>& latest = figures_[slot].last_finished;
    if (const std::pair<Incarnation, Step> name(incarnation, step); name > latest) {
      latest = name;
      ends_step = true;
      step_times_.PushEnded(slot, now);
    }
    usual_step = step_times_.Usual(slot);
  }
  // After a server restart the step time is unknown. The policy then uses the lease time, which is
  // how long it waits for a dead slot.
  if (usual_step == absl::InfiniteDuration()) {
    usual_step = absl::Seconds(spec().membership().lease_seconds());
  }
  parts_.policy->AwaitUpdate(slot, usual_step, ends_step && part.empty());
  const ParkedId id =
      finished_pushes_.Add({slot, incarnation, step, now, std::move(done), std::move(part)});
  if (AppliesWholeBatches(spec().consistency())) {
    parts_.store->Reconsider();
    RaiseMinClocks();
  }
  return id;
}

void HostedJob::Answer(const FinishedPushes::Push& push) {
  PushReply reply;
  bool is_whole = true;
  if (push.step > 0) {
    const absl::StatusOr<bool> acknowledged =
        parts_.store->Acknowledge(push.slot, push.incarnation, push.step, push.part, &reply);
    if (!acknowledged.ok()) {
      push.done(acknowledged.status());
      return;
    }
    is_whole = *acknowledged;
  }
  if (is_whole) {
    const std::optional<Step> clock = membership_.Advance(push.slot, push.incarnation, push.step);
    if (clock.has_value()) reply.set_clock(*clock);
    MutexLock lock(&mutex_);
    SlotFigures& figures = figures_[push.slot];
    const absl::Duration waited = clock_->Now() - push.finished;
    figures.waited += waited;
    figures.longest_wait = std::max(figures.longest_wait, waited);
    // If pushes are collected, each part of a push is answered only after the whole push has
    // arrived. So this code runs for each part, and must count the push once.
    const std::pair<Incarnation, Step> name(push.incarnation, push.step);
    if (figures.last_push != name) ++figures.pushes;
    figures.last_push = name;
  }
  RaiseMinClocks();
  ReachFailpoint(Failpoint::kPushAnswered);
  push.done(reply);
}

void HostedJob::RaiseMinClocks() {
  const int64_t min_clock = membership_.min_clock();
  finished_pushes_.AnswerSettled();
  std::vector<Watermark::Continuation> due;
  {
    MutexLock lock(&mutex_);
    due = pull_gate_.RaiseMinClock(min_clock);
  }
  for (const Watermark::Continuation& continuation : due) continuation();
  AnnounceDue();
}

absl::StatusOr<HostedJob::ParkedId> HostedJob::Pull(SlotId slot, Incarnation incarnation,
                                                    Step claimed, bool ahead, PullDone done) {
  if (const absl::Status possible = CheckStep(claimed); !possible.ok()) return possible;
  const absl::Duration arrived = clock_->Now();
  const absl::StatusOr<JobMembership::PullClock> begun =
      membership_.BeginPull(slot, incarnation, claimed, ahead);
  if (!begun.ok()) return begun.status();
  activity_.RecordCall(slot);
  parts_.policy->PullBegan(slot);
  const Step clock = begun->judged;
  RaiseMinClocks();
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
  clock_gap_.Add(clock - pull_gate_.min_clock());
  figures_[slot].parked += parked;
  step_times_.PullAnswered(slot, clock_->Now());
  return {pull_gate_.min_clock(), parked};
}

HostedJob::PullGrant HostedJob::ReadOnlyPull() const {
  MutexLock lock(&mutex_);
  return {pull_gate_.min_clock(), absl::ZeroDuration()};
}

void HostedJob::CancelPull(ParkedId id) {
  MutexLock lock(&mutex_);
  pull_gate_.Cancel(id);
}

void HostedJob::Describe(bool include_ledger, ServerStatus* status) {
  parts_.store->Describe(include_ledger, status);
  const ParameterStore::Counters counters = parts_.store->counters();
  status->set_job_id(job_id());
  status->set_job_name(spec().name());
  status->set_server_index(server_index());
  status->set_server_count(map().servers());
  status->set_initialized(parts_.store->initialized());
  *status->mutable_verdicts() = counters.verdicts;
  CopyHistogram(counters.lag, status->mutable_lag());
  const UpdateCounts updates = parts_.policy->update_counts();
  status->set_block_updates(updates.made);
  status->set_early_block_updates(updates.early);
  if (storage_ != nullptr) storage_->Describe(status->mutable_durability());

  const std::map<SlotId, SlotClocks::Slot> slots = membership_.slots();
  MutexLock lock(&mutex_);
  status->set_min_clock(pull_gate_.min_clock());
  status->set_parked_now(pull_gate_.parked());
  CopyHistogram(clock_gap_, status->mutable_clock_gap());
  for (const auto& [slot, state] : slots) {
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
    row->set_push_wait_seconds(absl::ToDoubleSeconds(figures.waited));
    row->set_longest_push_wait_seconds(absl::ToDoubleSeconds(figures.longest_wait));
    const absl::Duration usual_step = step_times_.Usual(slot);
    if (usual_step < absl::InfiniteDuration()) {
      row->set_usual_step_seconds(absl::ToDoubleSeconds(usual_step));
    }
    row->set_stalled_seconds(absl::ToDoubleSeconds(activity_.stalled_for(slot)));
  }
}

}  // namespace torchps

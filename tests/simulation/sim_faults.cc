// Implements the part of SimServer that plants the fault of a run.

#include <algorithm>
#include <utility>

#include "tests/simulation/planted_faults.h"
#include "tests/simulation/sim_server.h"

namespace torchps::simulation {

PushHeader SimServer::PlantInPush(HostedJob* job, const PushHeader& header) {
  PushHeader taken = header;
  if (header.step == 0) return taken;
  // These two faults need EACH_PUSH, because planted_faults.h cannot change the ledger entries of
  // collected pushes.
  if (fault_ == Fault::kSkipLedgerCheck && !scenario_->collects()) {
    ForgetStep(world_->clock(), &job->store(), header.block, header.slot, header.step);
  }
  if (fault_ == Fault::kIgnoreIncarnation && !scenario_->collects() &&
      model_.IsLive(header.slot, header.incarnation)) {
    ForgetIncarnation(world_->clock(), &job->store(), header.block, header.slot,
                      header.incarnation);
  }
  if (fault_ == Fault::kTakeLateGradient && scenario_->synchronous()) {
    taken.step = std::max(taken.step, job->ReadOnlyPull().min_clock + 1);
  }
  const int bound = scenario_->job.consistency().staleness_bound();
  if (fault_ == Fault::kTakeOldGradient && scenario_->whole_batches() && bound >= 0) {
    taken.base_version = std::max(taken.base_version, model_.GetVersion(header.block) - bound);
  }
  return taken;
}

void SimServer::PlantInUpdates() {
  if (!scenario_->whole_batches() || job_ == nullptr) return;
  if (fault_ != Fault::kApplyWholeMean && fault_ != Fault::kKeepSum) return;
  ServerStatus status;
  job_->Describe(/*include_ledger=*/false, &status);
  const bool any_was_early = status.early_block_updates() > early_updates_;
  early_updates_ = status.early_block_updates();
  collected_.OnUpdates(world_->clock(), &job_->store(),
                       fault_ == Fault::kApplyWholeMean && any_was_early &&
                           scenario_->job.optimizer().sgd().momentum() == 0);
}

void SimServer::PlantInReturn() {
  if (fault_ != Fault::kKeepSum || !scenario_->whole_batches()) return;
  if (std::exchange(has_died_, false)) collected_.Rewind(world_->clock(), &job_->store());
}

std::optional<PushReply> SimServer::PlantInAnswer(const PushHeader& header, size_t index,
                                                  size_t count) const {
  const bool answers_at_once =
      (fault_ == Fault::kAcknowledgeEarly && index == 0) ||
      (fault_ == Fault::kAcknowledgeCollected && scenario_->whole_batches() && index + 1 == count);
  if (!answers_at_once || header.step == 0) return std::nullopt;
  PushReply reply;
  for (const BlockId id : scenario_->map.owned_by(index_)) {
    BlockVerdict* const verdict = reply.add_block();
    verdict->set_block(id);
    verdict->set_verdict(ACCEPTED);
  }
  return reply;
}

}  // namespace torchps::simulation

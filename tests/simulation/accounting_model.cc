#include "tests/simulation/accounting_model.h"

#include <algorithm>
#include <cmath>

namespace torchps::simulation {

void AccountingModel::OnNamed(Incarnation incarnation, uint64_t nonce) {
  if (nonces_.emplace(incarnation, nonce).first->second != nonce) {
    world_->Violation("two processes got incarnation ", incarnation);
  }
}

void AccountingModel::OnLease(SlotId slot, Incarnation incarnation, const DataLease& lease) {
  const auto [found, is_new] =
      accounting_.leases.emplace(lease.id(), Lease{slot, incarnation, lease});
  if (!is_new) {
    if (found->second.slot != slot || found->second.incarnation != incarnation) {
      world_->Violation("data lease ", lease.id(), " was given to slot ", found->second.slot,
                        " and to slot ", slot);
    }
    return;
  }
  if (lease.begin() < 0 || lease.end() > scenario_->train_samples || lease.begin() >= lease.end() ||
      lease.epoch() < 1 || lease.epoch() > scenario_->job.training().epochs()) {
    world_->Violation("data lease ", lease.id(), " is ", lease.ShortDebugString());
  }
  CheckProgress(lease);
}

void AccountingModel::CheckProgress(const DataLease& lease) {
  const TrainingSpec& training = scenario_->job.training();
  const auto total = static_cast<double>(scenario_->train_samples * training.epochs());
  const double before = static_cast<double>(accounting_.handed_out) / total;
  if (!lease.reissued()) accounting_.handed_out += lease.end() - lease.begin();
  const double after = static_cast<double>(accounting_.handed_out) / total;
  const auto is = [](double told, double counted) { return std::abs(told - counted) < 1e-9; };
  // With max_pushes the coordinator also counts pushes, and job progress is the larger of the
  // fractions of samples and of pushes. The model counts only samples, so it checks lower bounds.
  const bool is_so =
      training.max_pushes() > 0
          ? lease.progress_begin() >= std::max(before, accounting_.progress) - 1e-9 &&
                lease.progress_end() >= std::max(after, lease.progress_begin()) - 1e-9 &&
                lease.progress_end() <= 1
          : is(lease.progress_begin(), before) && is(lease.progress_end(), after);
  if (!is_so) {
    world_->Violation("data lease ", lease.id(), " contains job progress ", lease.progress_begin(),
                      " to ", lease.progress_end(), "; expected ", before, " to ", after);
  }
  accounting_.progress = lease.progress_end();
}

void AccountingModel::OnRestored(uint64_t revision) {
  const auto kept = kept_.find(revision);
  if (kept == kept_.end()) {
    world_->Violation("the coordinator restored revision ", revision,
                      " of the state, which was never saved");
    return;
  }
  accounting_ = kept->second;
}

void AccountingModel::OnHandedIn(const NextWorkRequest& request, const JobStatus& status) {
  for (const EpochAccounting& accounting : status.epoch()) {
    int64_t& known = accounting_.used_count[accounting.epoch()];
    const int64_t more = accounting.used() - known;
    known = accounting.used();
    if (accounting.used() + accounting.outstanding() > accounting.samples() || more < 0) {
      world_->Violation("the accounting of epoch ", accounting.epoch(),
                        " is wrong: ", accounting.ShortDebugString());
    }
    if (more == 0) continue;
    int64_t lost = 0;
    for (const LeaseRange& part : request.lost()) lost += part.end() - part.begin();
    const auto found = accounting_.leases.find(request.finished_lease());
    if (found == accounting_.leases.end() || found->second.counted ||
        found->second.slot != request.slot() ||
        found->second.incarnation != request.incarnation() ||
        found->second.lease.epoch() != accounting.epoch() ||
        found->second.lease.end() - found->second.lease.begin() - lost != more) {
      world_->Violation("slot ", request.slot(), " returned data lease ", request.finished_lease(),
                        ", and ", more, " samples of epoch ", accounting.epoch(),
                        " were counted as used");
      return;
    }
    found->second.counted = true;
    std::vector<bool>& used_now = accounting_.used[accounting.epoch()];
    used_now.resize(scenario_->train_samples);
    const int64_t begin = found->second.lease.begin();
    for (int64_t i = begin; i < found->second.lease.end(); ++i) {
      const bool is_lost =
          std::any_of(request.lost().begin(), request.lost().end(), [&](const LeaseRange& part) {
            return i - begin >= part.begin() && i - begin < part.end();
          });
      if (is_lost) continue;
      if (used_now[i])
        world_->Violation("sample ", i, " of epoch ", accounting.epoch(), " counted twice");
      used_now[i] = true;
    }
  }
}

void AccountingModel::CheckEnd(const JobStatus& status) const {
  const bool is_cut = scenario_->job.training().max_pushes() > 0;
  if (!is_cut && status.epoch_size() != scenario_->job.training().epochs()) {
    world_->Violation("the job ended after ", status.epoch_size(), " epochs");
  }
  for (const EpochAccounting& accounting : status.epoch()) {
    const auto used = accounting_.used.find(accounting.epoch());
    const int64_t counted = used == accounting_.used.end()
                                ? 0
                                : std::count(used->second.begin(), used->second.end(), true);
    if (!accounting.closed() || accounting.outstanding() != 0 || counted != accounting.used() ||
        (!is_cut && counted != scenario_->train_samples)) {
      world_->Violation("the accounting at the end of the job is ", accounting.ShortDebugString(),
                        "; ", counted, " samples were used");
    }
  }
  if (scenario_->job.training().evaluate() && status.evaluation_size() != status.epoch_size()) {
    world_->Violation("the job ended after ", status.evaluation_size(), " evaluations of ",
                      status.epoch_size(), " epochs");
  }
}

}  // namespace torchps::simulation

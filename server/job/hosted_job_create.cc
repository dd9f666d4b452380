// How a job comes to be at a server: from the first Hello, and from what an earlier life has kept.
// Every later Hello is held against it.

#include <unistd.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "job/job_difference.h"
#include "job/job_spec.h"
#include "server/job/hosted_job.h"
#include "server/store/async_push.h"
#include "server/store/sync_push.h"
#include "wire/layout_codec.h"

namespace torchps {
namespace {

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
  store_->snapshot().FinishRestore();
  {
    MutexLock lock(&mutex_);
    for (const auto& [slot, history] : store_->snapshot().Histories()) {
      clocks_.Expect(slot, history.clock, history.incarnation, clock_->Now());
    }
  }
  MembershipChanged();
  return absl::OkStatus();
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

}  // namespace torchps

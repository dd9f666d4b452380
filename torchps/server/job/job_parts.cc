#include "torchps/server/job/job_parts.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/common/types.h"
#include "torchps/job/job_difference.h"
#include "torchps/job/job_spec.h"
#include "torchps/job/local_steps.h"
#include "torchps/server/store/async_push.h"
#include "torchps/server/store/batch_push.h"
#include "torchps/server/store/gradient_sum.h"
#include "torchps/server/store/sync_push.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

// Returns the part of the job's samples that all slots together hold in sample leases, in units of
// 2^-32 (GetProgress).
uint32_t LeasesSideBySide(const JobSpec& job) {
  const auto pushes = static_cast<double>(job.optimizer().schedule().total_steps());
  const int64_t passes = PassesOfPush(job);
  const int64_t of_lease = (job.training().lease_batches() + passes - 1) / passes;
  const int64_t in_hand = job.workers() * of_lease;
  return pushes > 0 ? GetProgress(static_cast<double>(in_hand) / pushes) : UINT32_MAX;
}

// Refuses a job that exceeds the memory limit with a clear error, before the kernel kills the
// process.
absl::Status CheckMemory(const JobParts& parts) {
  int64_t needed = 0;
  for (const BlockId id : parts.map.owned_by(parts.server_index)) {
    const BlockRange& block = parts.map.blocks()[id];
    needed += parts.updater->StateBytes(block);
    // Collected gradients need one more array for the sum.
    if (parts.collects_pushes()) needed += block.length * static_cast<int64_t>(sizeof(float));
    // The block's ledger.
    needed += parts.spec.workers() * static_cast<int64_t>(sizeof(LedgerEntry));
  }
  const MemoryLimit limit = FindMemoryLimit();
  if (needed <= limit.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the job's blocks take ", needed >> 20, " MiB of memory on this server, ", limit.whose, " ",
      limit.bytes >> 20, " MiB; use more servers, or give this server more memory"));
}

std::unique_ptr<PushPolicy> MakePolicy(const JobParts& parts, const Clock* clock) {
  const ConsistencySpec& consistency = parts.spec.consistency();
  const size_t blocks = parts.map.blocks().size();
  if (HasRounds(consistency)) {
    return std::make_unique<SyncPush>(blocks, parts.map.owned_by(parts.server_index).size(),
                                      consistency.backup_workers(), parts.updater.get(),
                                      consistency.grace_part(), clock);
  }
  if (AppliesEachPush(consistency)) {
    return std::make_unique<AsyncPush>(consistency.lag(), GetSampleScale(parts.spec),
                                       LeasesSideBySide(parts.spec), parts.updater.get());
  }
  BatchPush::Options options;
  options.batch_samples = SamplesOfPush(parts.spec);
  options.per_slot = !parts.spec.training().global_batch();
  options.bound = consistency.staleness_bound();
  options.patience = consistency.patience();
  return std::make_unique<BatchPush>(blocks, options, parts.updater.get(), clock);
}

std::string Course(uint64_t resumed_checkpoint) {
  return resumed_checkpoint == 0 ? "from its beginning"
                                 : absl::StrCat("as resumed from checkpoint ", resumed_checkpoint);
}

}  // namespace

absl::StatusOr<JobParts> MakeJobParts(const HelloRequest& request, const Clock* clock) {
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
      BlockUpdater::Create(spec->optimizer(), *layout, *map, spec->workers());
  if (!updater.ok()) return updater.status();

  JobParts parts;
  parts.spec = *spec;
  parts.layout = *std::move(layout);
  parts.map = *std::move(map);
  parts.job_id = request.job_id();
  parts.resumed_checkpoint = request.resumed_checkpoint();
  parts.server_index = request.server_index();
  parts.updater = *std::move(updater);
  if (absl::Status fits = CheckMemory(parts); !fits.ok()) return fits;
  parts.policy = MakePolicy(parts, clock);
  parts.store = std::make_unique<ParameterStore>(parts.layout, parts.map, parts.server_index,
                                                 parts.updater.get(), parts.policy.get());
  return parts;
}

absl::Status CheckSameJob(const JobParts& parts, const HelloRequest& request) {
  if (request.job_id() != parts.job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server already runs job '", parts.spec.name(), "', number ",
                     parts.job_id, ", and the worker's job is number ", request.job_id(),
                     "; start fresh servers for another job, or stop this one first"));
  }
  if (request.resumed_checkpoint() != parts.resumed_checkpoint) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server runs the job ", Course(parts.resumed_checkpoint),
                     "; the worker runs the job ", Course(request.resumed_checkpoint()),
                     ". To resume a job, restart all of its servers and workers"));
  }
  const absl::Status same_spec =
      CheckSameJob(parts.spec, request.job(), "the running job", "this worker");
  if (!same_spec.ok()) return same_spec;
  const absl::StatusOr<ModelLayout> layout = DecodeLayout(request.layout());
  if (!layout.ok()) return layout.status();
  const absl::Status same_layout =
      parts.layout.CheckSame(*layout, "the running job", "this worker");
  if (!same_layout.ok()) return same_layout;
  if (request.server_index() != parts.server_index ||
      request.server_count() != parts.map.servers()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this server is number ", parts.server_index, " of ", parts.map.servers(),
        " in the running job; the worker expects number ", request.server_index(), " of ",
        request.server_count(), ". Give all workers the same --servers list in the same order"));
  }
  return absl::OkStatus();
}

}  // namespace torchps

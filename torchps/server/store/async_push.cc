#include "torchps/server/store/async_push.h"

#include <algorithm>

namespace torchps {

absl::StatusOr<PushDecision> AsyncPush::Push(Block* block, const PushHeader& header,
                                             const FramePayload& payload) {
  LedgerEntry& entry = block->Ledger(header.slot);
  absl::StatusOr<PushDecision> decision =
      gate_.Judge(entry, header.incarnation, header.step, header.base_version, block->version);
  if (!decision.ok() || decision->duplicate) return decision;
  if (header.withheld) {
    decision->verdict = WITHHELD;
    decision->apply = false;
  }
  const uint32_t progress = progress_.Meet(header.progress);
  BlockRecord record;
  if (decision->apply) {
    if (scale_.of != SampleScale::Of::kNothing) {
      double& factor = scale_.of == SampleScale::Of::kGradient ? decision->gradient_factor
                                                               : decision->rate_factor;
      factor *= static_cast<double>(header.weight) / static_cast<double>(scale_.whole_step);
    }
    decision->gradient_factor *= static_cast<double>(header.weight) / header.mean_weight();
    record.kind = BlockRecord::Kind::kGradient;
    record.terms.rate_factor = decision->rate_factor;
    record.terms.gradient_factor = decision->gradient_factor;
    record.terms.share = scale_.is_of_all ? 1.0 : 1.0 / live_slots_.load(std::memory_order_relaxed);
    record.terms.progress = progress;
    record.payload = &payload;
    record.absent = header.absent;
    updater_->Apply(block, payload, record.terms, record.absent);
  }
  PushGate::Record(*decision, header.incarnation, header.step, &entry);
  record.slots = absl::MakeConstSpan(&header.slot, 1);
  Report(*block, record);
  return decision;
}

void AsyncPush::SetLive(const std::vector<LiveSlot>& live) {
  live_slots_.store(std::max<int>(1, live.size()), std::memory_order_relaxed);
}

void AsyncPush::TakeRestored(Block*, Version) { gate_.AllowRolledBack(); }

}  // namespace torchps

#include "server/async_push.h"

#include <algorithm>

namespace torchps {

absl::StatusOr<PushDecision> AsyncPush::Push(Block* block, const PushHeader& header,
                                             const FramePayload& payload) {
  LedgerEntry& entry = block->Ledger(header.slot);
  absl::StatusOr<PushDecision> decision =
      gate_.Judge(entry, header.step, header.base_version, block->version);
  if (!decision.ok() || decision->duplicate) return decision;
  if (header.withheld) {
    decision->verdict = WITHHELD;
    decision->apply = false;
  }
  if (decision->apply) {
    updater_->Apply(block, payload, decision->rate_factor,
                    /*share=*/1.0 / live_slots_.load(std::memory_order_relaxed));
  }
  PushGate::Record(*decision, header.step, &entry);
  return decision;
}

void AsyncPush::SetLive(const std::vector<LiveSlot>& live) {
  live_slots_.store(std::max<int>(1, live.size()), std::memory_order_relaxed);
}

}  // namespace torchps

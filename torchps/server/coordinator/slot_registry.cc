#include "torchps/server/coordinator/slot_registry.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/check.h"

namespace torchps {

SlotRegistry::SlotRegistry(Options options)
    : options_(options), next_incarnation_(options.first_incarnation) {
  TPS_CHECK(options.lease > absl::ZeroDuration(), "the lease must be longer than 0");
  TPS_CHECK(options.first_incarnation > 0, "incarnations begin at 1");
}

absl::Status SlotRegistry::CheckWish(SlotId wanted, uint64_t nonce) {
  if (wanted < -1 || wanted >= kMaxSlots) {
    return absl::InvalidArgumentError(absl::StrCat("there is no slot ", wanted, ": slots are 0 to ",
                                                   kMaxSlots - 1,
                                                   ", or -1 for the lowest free one"));
  }
  if (nonce == 0) {
    return absl::InvalidArgumentError(
        "nonce is 0: each process must draw a nonzero number at its start");
  }
  return absl::OkStatus();
}

absl::StatusOr<SlotHolder> SlotRegistry::Take(SlotId wanted, uint64_t nonce,
                                              const std::string& host, absl::Duration now) {
  TPS_DCHECK(CheckWish(wanted, nonce).ok(), "CheckWish() was not called");
  for (auto& [slot, hold] : live_) {
    if (hold.nonce != nonce) continue;
    hold.deadline = now + options_.lease;
    return SlotHolder{slot, hold.incarnation};
  }

  SlotId slot = wanted;
  if (wanted == -1) {
    slot = 0;
    for (const auto& [held, hold] : live_) {
      if (held != slot) break;
      ++slot;
    }
    if (slot == kMaxSlots) {
      return absl::ResourceExhaustedError(absl::StrCat("all ", kMaxSlots, " slots are held"));
    }
  } else if (const auto found = live_.find(slot); found != live_.end()) {
    const Hold& hold = found->second;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "slot %d is held by a process on %s (incarnation %d), whose lease runs for another %.1f s",
        slot, hold.host, hold.incarnation, absl::ToDoubleSeconds(hold.deadline - now)));
  }
  Hold hold;
  hold.incarnation = next_incarnation_++;
  hold.nonce = nonce;
  hold.host = host;
  hold.deadline = now + options_.lease;
  const SlotHolder holder{slot, hold.incarnation};
  live_.emplace(slot, std::move(hold));
  return holder;
}

std::optional<SlotHolder> SlotRegistry::OtherHolder(SlotId slot, uint64_t nonce) const {
  const auto found = live_.find(slot);
  if (found == live_.end() || found->second.nonce == nonce) return std::nullopt;
  return SlotHolder{slot, found->second.incarnation};
}

absl::Status SlotRegistry::Renew(SlotHolder holder, absl::Duration now) {
  if (holder.slot < 0 || holder.slot >= kMaxSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no slot ", holder.slot, ": slots are 0 to ", kMaxSlots - 1));
  }
  const auto found = live_.find(holder.slot);
  if (found == live_.end()) {
    return absl::AbortedError(
        absl::StrCat("incarnation ", holder.incarnation, " of slot ", holder.slot,
                     " has ended, because its lease expired or it left: join again"));
  }
  if (found->second.incarnation != holder.incarnation) {
    return absl::AbortedError(absl::StrCat("slot ", holder.slot, " is held by incarnation ",
                                           found->second.incarnation, ", not ", holder.incarnation,
                                           ": join again"));
  }
  found->second.deadline = now + options_.lease;
  return absl::OkStatus();
}

void SlotRegistry::Leave(SlotHolder holder) {
  if (IsLive(holder)) live_.erase(holder.slot);
}

std::vector<SlotHolder> SlotRegistry::Expire(absl::Duration now) {
  std::vector<SlotHolder> expired;
  for (auto it = live_.begin(); it != live_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    expired.push_back({it->first, it->second.incarnation});
    it = live_.erase(it);
  }
  return expired;
}

uint64_t SlotRegistry::GetNonce(SlotHolder holder) const {
  const auto found = live_.find(holder.slot);
  if (found == live_.end() || found->second.incarnation != holder.incarnation) return 0;
  return found->second.nonce;
}

absl::Status SlotRegistry::Restore(SlotHolder holder, uint64_t nonce, const std::string& host,
                                   absl::Duration now) {
  const bool possible = holder.slot >= 0 && holder.slot < kMaxSlots && nonce != 0 &&
                        holder.incarnation > 0 && holder.incarnation < next_incarnation_;
  Hold hold;
  hold.incarnation = holder.incarnation;
  hold.nonce = nonce;
  hold.host = host;
  hold.deadline = now + options_.lease;
  if (!possible || !live_.emplace(holder.slot, std::move(hold)).second) {
    return absl::DataLossError(
        absl::StrCat("incarnation ", holder.incarnation, " cannot have held slot ", holder.slot));
  }
  return absl::OkStatus();
}

bool SlotRegistry::IsLive(SlotHolder holder) const {
  const auto found = live_.find(holder.slot);
  return found != live_.end() && found->second.incarnation == holder.incarnation;
}

}  // namespace torchps

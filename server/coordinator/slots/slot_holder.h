#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "common/ids.h"

namespace torchps {

// Identifies one process's hold on one slot. An incarnation is never assigned twice within a job,
// so a former holder never returns under the same identity.
struct SlotHolder {
  SlotId slot = 0;
  Incarnation incarnation = 0;

  friend bool operator==(const SlotHolder& a, const SlotHolder& b) {
    return a.slot == b.slot && a.incarnation == b.incarnation;
  }
  friend bool operator<(const SlotHolder& a, const SlotHolder& b) {
    return std::tie(a.slot, a.incarnation) < std::tie(b.slot, b.incarnation);
  }
};

// Describes a slot with an expired lease at the coordinator, and the servers that may not know.
struct EvictedSlot {
  SlotHolder holder;
  std::vector<std::string> servers;  // in server order; empty if unknown
};

}  // namespace torchps

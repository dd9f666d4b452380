#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "common/ids.h"

namespace torchps {

// One process's hold on one slot: names what did, holds or asks for something. An incarnation is
// never given out twice within a job, so a holder that is gone never comes back under the same
// name.
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

// A slot whose lease at the coordinator has run out, and where the servers are that may not know.
struct EvictedSlot {
  SlotHolder holder;
  std::vector<std::string> servers;  // addresses, in the servers' order; empty ones are not known
};

}  // namespace torchps

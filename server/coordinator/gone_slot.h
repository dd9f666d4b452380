#pragma once

#include <string>
#include <vector>

#include "server/coordinator/work/slot_holder.h"

namespace torchps {

// A slot whose lease at the coordinator has run out, and where the servers are that may not know.
struct GoneSlot {
  SlotHolder holder;
  std::vector<std::string> servers;  // addresses, in the servers' order, as workers tell them
};

}  // namespace torchps

#pragma once

#include "absl/time/time.h"
#include "common/block_map.h"

namespace torchps {

// The deadline of one try to move all blocks of `server` in one direction: time for the bytes on a
// slow link, and for what a server may hold a call back. A try that takes longer is made again from
// its beginning.
absl::Duration TransferTimeout(const BlockMap& map, int server);

}  // namespace torchps

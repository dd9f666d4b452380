#pragma once

#include "absl/time/time.h"
#include "common/block_map.h"

namespace torchps {

// Returns the timeout of one attempt to transfer all blocks of `server` in one direction. It covers
// the bytes on a slow link and the time that a server may park the call. After the timeout, the
// attempt is repeated from the beginning.
absl::Duration TransferTimeout(const BlockMap& map, int server);

}  // namespace torchps

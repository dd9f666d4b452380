#pragma once

#include "absl/status/status.h"
#include "bench/data_plane/scenario.h"

namespace torchps {

// Runs the peer of raw_tcp: listens on a free port of `listen_host`, prints the address, and reads
// incoming data into a reused buffer. Exits at the end of standard input.
absl::Status ServeTcp(const std::string& listen_host);

}  // namespace torchps

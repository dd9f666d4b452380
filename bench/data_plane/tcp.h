#pragma once

#include "absl/status/status.h"
#include "bench/data_plane/scenario.h"

namespace torchps {

// The other end of raw_tcp: takes connections on a free port
// of `listen_host`, says where on standard output, and reads what comes into one buffer over and
// over, until standard input ends.
absl::Status ServeTcp(const std::string& listen_host);

}  // namespace torchps

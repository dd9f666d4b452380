#include "client/calls/transfer_timeout.h"

namespace torchps {
namespace {

// For calls that a server may park. After this time the same call is repeated.
constexpr absl::Duration kParkTimeout = absl::Seconds(30);
constexpr double kSlowestBytesPerSecond = 4 << 20;

}  // namespace

absl::Duration TransferTimeout(const BlockMap& map, int server) {
  double bytes = 0;
  for (const BlockId id : map.owned_by(server)) {
    bytes += static_cast<double>(map.blocks()[id].length * sizeof(float));
  }
  return kParkTimeout + absl::Seconds(bytes / kSlowestBytesPerSecond);
}

}  // namespace torchps

#include "client/calls/transfer_timeout.h"

namespace torchps {
namespace {

// Of calls that a server may park: then the same call is made again.
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

#include "client/calls/this_process.h"

#include <unistd.h>

#include <random>

namespace torchps {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

uint64_t DrawNonce() {
  std::random_device random;
  uint64_t nonce = 0;
  while (nonce == 0) nonce = (uint64_t{random()} << 32) | random();
  return nonce;
}

}  // namespace torchps

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Parameters of one measurement: the processes and the amount of data. Each process receives them
// as flags.
struct Scenario {
  // Size of a message or of the model's values: float32 bytes, a multiple of 4. The last block may
  // be short.
  int64_t bytes = 16 << 20;
  int workers = 1;
  int servers = 1;
  // "tcp"; "tls", with certificates on both sides; or "shm", with payloads in shared memory.
  std::string transport = "tcp";
  // Directory of the certificates for "tls".
  std::string certs;
  // float32, bfloat16, int8 or top_k. Used for pushes and, except for top_k, for pulls.
  std::string encoding = "float32";
  // OptimizerSpec in text format, without the learning rate.
  std::string optimizer = "sgd {}";
  // "none", or "log": servers write each push to disk before they answer. Requires servers with
  // --dir.
  std::string durability = "none";
};

// The processes that a case needs in addition to the workers.
enum class Cast {
  kAlone,      // none: measures the worker's memory
  kPlainPeer,  // a process of this program as the peer
  kTorchpsServer,
};

// Describes a case to measure.
struct Case {
  absl::string_view name;
  Cast cast;
  // How often one operation transfers Scenario::bytes: 2 times if it pushes and pulls.
  int payloads;
};

// Finds a case by name. NOT_FOUND: the message lists the known cases.
absl::Status FindCase(absl::string_view name, const Case** found);

}  // namespace torchps

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// What one measurement is about: which processes exchange how many bytes. Each process that takes
// part gets it as flags. A plain value.
struct Scenario {
  // One message, or one model's values: float32 bytes, a multiple of 4. The last block may be
  // short.
  int64_t bytes = 16 << 20;
  int workers = 1;
  int servers = 1;
  // "tcp"; "tls": the same with certificates on both sides; or "shm": payloads go through memory
  // that worker and server share.
  std::string transport = "tcp";
  // Where the certificates of "tls" lie.
  std::string certs;
  // float32, bfloat16, int8 or top_k: of pushes, and of pulls where that can be (top_k:
  // float32).
  std::string encoding = "float32";
  // OptimizerSpec in text format but for its rate.
  std::string optimizer = "sgd {}";
  // "none", or "log": every push is on the disk before it is answered; needs servers with --dir.
  std::string durability = "none";
};

// Which processes a case needs beside the workers.
enum class Cast {
  kAlone,      // none: the worker's own memory is what is measured
  kPlainPeer,  // a process of this program at the other end
  kTorchpsServer,
};

// A thing that is measured, and what it moves.
struct Case {
  absl::string_view name;
  Cast cast;
  // How often one operation moves Scenario::bytes: 2 for push and pull together.
  int payloads;
};

// NOT_FOUND lists the known ones.
absl::Status FindCase(absl::string_view name, const Case** found);

}  // namespace torchps

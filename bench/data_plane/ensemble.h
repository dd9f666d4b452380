#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/data_plane/child.h"
#include "bench/data_plane/scenario.h"

namespace torchps {

// One repetition of one case. Rates count float32 bytes of payload that arrived per second of wall
// clock, whatever travelled for them; 1 GB is 1e9 bytes.
struct Measurement {
  double gbps = 0;          // GB/s, all workers together
  double cpu_s_per_gb = 0;  // processor time of all processes
  double calls_per_s = 0;   // operations, all workers together
  double p50_us = 0;        // of one operation
  double p99_us = 0;
  double rss_mb = 0;    // most that servers (alone: workers) held together, 1 MB is 1e6 bytes
  double fairness = 0;  // the slowest worker's rate by the fastest one's
  int64_t operations = 0;
  std::string congestion;  // as Child::CongestionControl, of all processes
};

// The processes of one scenario, kept from repetition to repetition, so that every repetition meets
// warm connections and memory. Not thread-safe.
class Ensemble {
 public:
  struct Options {
    Scenario scenario;
    Cast cast = Cast::kTorchpsServer;
    // Commands, each with what goes before it (taskset, ip netns exec): a server or a peer, and a
    // worker but for --slot and --at.
    std::vector<std::string> server_command;
    std::vector<std::string> worker_command;
  };

  // Starts all of them and waits until they are ready.
  static absl::StatusOr<std::unique_ptr<Ensemble>> Start(Options options);

  // All workers at once repeat the case, a little to warm up, since they may have stood still for
  // minutes, and then for `duration`, and `least` times at least.
  absl::StatusOr<Measurement> Measure(const std::string& case_name, absl::Duration duration,
                                      int64_t least);

 private:
  explicit Ensemble(Options options);

  absl::Status StartAll();
  // One round, not judged yet: the accounts' lines.
  absl::StatusOr<std::vector<std::string>> Round(const std::string& case_name,
                                                 absl::Duration duration, int64_t least,
                                                 int64_t* max_resident_bytes);
  absl::Duration CpuTime() const;
  int64_t ResidentBytes() const;

  const Options options_;
  std::vector<std::unique_ptr<Child>> servers_;
  std::vector<std::unique_ptr<Child>> workers_;
};

}  // namespace torchps

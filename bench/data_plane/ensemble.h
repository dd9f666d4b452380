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

// Result of one repetition of a case. Rates count the float32 payload bytes delivered per second of
// wall clock, regardless of the encoded size; 1 GB is 1e9 bytes.
struct Measurement {
  double gbps = 0;          // GB/s, sum over workers
  double cpu_s_per_gb = 0;  // processor time, sum over processes
  double calls_per_s = 0;   // operations, sum over workers
  double p50_us = 0;        // latency of an operation
  double p99_us = 0;
  double rss_mb = 0;    // peak memory of the servers (kAlone: workers) together; 1 MB is 1e6 bytes
  double fairness = 0;  // slowest worker's rate / fastest worker's rate
  int64_t operations = 0;
  std::string congestion;  // see Child::CongestionControl
};

// The processes of one scenario. They persist between repetitions, so that connections and memory
// are warm. Not thread-safe.
class Ensemble {
 public:
  struct Options {
    Scenario scenario;
    Cast cast = Cast::kTorchpsServer;
    // Commands, including prefixes (taskset, ip netns exec): for a server or a peer, and for a
    // worker without --slot and --at.
    std::vector<std::string> server_command;
    std::vector<std::string> worker_command;
  };

  // Starts the processes and waits until they are ready.
  static absl::StatusOr<std::unique_ptr<Ensemble>> Start(Options options);

  // Runs the case on the workers at the same time: first a short warm-up, because the workers may
  // have been idle for minutes, then for `duration` and at least `least` operations.
  absl::StatusOr<Measurement> Measure(const std::string& case_name, absl::Duration duration,
                                      int64_t least);

 private:
  explicit Ensemble(Options options);

  absl::Status StartAll();
  // Gives one order to all workers. Returns a line with the Account (bench/data_plane/worker.h) of
  // each worker, and raises `*max_resident_bytes` to the peak memory in this time.
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

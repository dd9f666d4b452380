// Runs many simulated jobs, or one with a trace:
//
//   bazel run //tests/simulation:simulate -- --seeds=100000 --first_seed=0
//   bazel run //tests/simulation:simulate -- --seed=4711 --trace
//
// The last line is 'seeds N violations N'. The exit code is 1 if there was a violation.

#include <chrono>
#include <cstdint>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/simulation/simulation.h"

ABSL_FLAG(uint64_t, seeds, 1000, "number of seeds to run");
ABSL_FLAG(uint64_t, first_seed, 0, "first seed");
ABSL_FLAG(int64_t, seed, -1, "run only this seed");
ABSL_FLAG(bool, trace, false, "print the events");
ABSL_FLAG(int, fault, 0, "plant this Fault of tests/simulation/scenario.h, by number");

namespace torchps::simulation {
namespace {

int Main() {
  uint64_t first = absl::GetFlag(FLAGS_first_seed);
  uint64_t seeds = absl::GetFlag(FLAGS_seeds);
  if (absl::GetFlag(FLAGS_seed) >= 0) {
    first = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
    seeds = 1;
  }
  const auto began = std::chrono::steady_clock::now();
  uint64_t violations = 0;
  uint64_t events = 0;
  double virtual_seconds = 0;
  int worker_deaths = 0;
  int server_deaths = 0;
  int lost_disks = 0;
  uint64_t batch_updates = 0;
  uint64_t early_updates = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    RunOptions options;
    options.seed = seed;
    options.is_traced = absl::GetFlag(FLAGS_trace);
    options.fault = static_cast<Fault>(absl::GetFlag(FLAGS_fault));
    const Outcome outcome = Run(options);
    events += outcome.events;
    virtual_seconds += outcome.virtual_seconds;
    worker_deaths += outcome.worker_deaths;
    server_deaths += outcome.server_deaths;
    lost_disks += outcome.lost_disks;
    batch_updates += outcome.batch_updates;
    early_updates += outcome.early_updates;
    if (outcome.violation.empty()) continue;
    ++violations;
    std::printf("seed %lu: %s\n", seed, outcome.violation.c_str());
    std::fflush(stdout);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf(
      "%lu events, %.0f virtual seconds, %d deaths of workers and %d of servers, %d lost disks, "
      "in %.1f s\n",
      events, virtual_seconds, worker_deaths, server_deaths, lost_disks, took.count());
  std::printf("%lu updates of blocks by whole batches, %lu of them early\n", batch_updates,
              early_updates);
  std::printf("seeds %lu violations %lu\n", seeds, violations);
  return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace torchps::simulation

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return torchps::simulation::Main();
}

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// What one server answered when the report was made.
struct ServerAnswer {
  std::string address;
  absl::StatusOr<ServerStatus> status;
};

// What one run did: the coordinator's books and every server's counters, put side by side and
// compared. docs/report.md says what each number means; tools/report/report_json.h and
// tools/report/report_text.h write it down. A plain value.
struct Report {
  struct Evaluation {
    int64_t samples = 0;
    double loss = 0;
    double accuracy = 0;  // 0 to 1
    double seconds = 0;
    double at_seconds = 0;  // since the job's start
  };

  struct Epoch {
    int number = 0;  // from 1
    bool closed = false;
    int64_t samples = 0;
    int64_t used = 0;
    int64_t reissued = 0;
    int64_t outstanding = 0;
    double train_loss = 0;
    double closed_at_seconds = 0;
    absl::optional<Evaluation> evaluation;
  };

  // Where a slot's time went, in seconds.
  struct Times {
    double compute = 0;
    double push = 0;
    double pull = 0;
    double wait = 0;
    double data = 0;
    double other = 0;
    double total() const { return compute + push + pull + wait + data + other; }
  };

  struct Slot {
    int slot = 0;
    uint64_t incarnation = 0;
    std::string host;
    std::string device;
    std::string state;   // in small letters: "finished"
    std::string reason;  // why it left, if it did before the end
    uint64_t steps = 0;  // pushes made
    uint64_t samples = 0;
    double mean_loss = 0;
    uint64_t rejected_pushes = 0;
    uint64_t skipped_nonfinite = 0;
    // Pushes that had been acknowledged, and of which a server that came back from a checkpoint has
    // lost a block or more; and those blocks.
    uint64_t rolled_back_pushes = 0;
    uint64_t rolled_back_blocks = 0;
    Times seconds;
    uint64_t parked_pulls = 0;  // summed over servers
  };

  struct Server {
    int index = 0;
    std::string address;
    std::string error;  // why its numbers are missing; empty: they are there
    uint64_t blocks = 0;
    uint64_t state_bytes = 0;
    int64_t min_version = 0;
    int64_t max_version = 0;
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
    double uptime_seconds = 0;
    // It came back while the job ran, and has counted only since then.
    bool came_back = false;
    uint64_t restored_checkpoint = 0;  // from this one; 0: from none
    VerdictCounts verdicts;
  };

  // Counts of integer values, merged over servers: counts[i] counts value i. The last one counts
  // all from there up if values beyond it were seen (`open`). No empty counts at the end.
  struct Distribution {
    std::vector<uint64_t> counts;
    bool open = false;
    uint64_t count = 0;
    int64_t max = 0;
    double mean = 0;
  };

  // One comparison of two numbers that must agree if no sample and no gradient got lost.
  struct Check {
    std::string name;
    // Nothing: it cannot be judged in this run (`note` says why).
    absl::optional<bool> holds;
    int64_t expected = 0;
    int64_t actual = 0;
    std::string note;
  };

  uint64_t job_id = 0;
  JobSpec job;
  bool finished = false;
  std::string phase;  // in small letters: "done"
  int64_t parameters = 0;
  double wall_seconds = 0;          // from the start of training to its end
  uint64_t samples = 0;             // trained on, over all slots
  uint64_t pushes = 0;              // over all slots
  uint64_t rolled_back_pushes = 0;  // of those
  uint64_t rolled_back_blocks = 0;
  CheckpointStatus checkpoint;      // what is kept of the job
  uint64_t resumed_checkpoint = 0;  // it went on from this one; 0: it began anew
  std::string stopped;              // why it ended early; empty: it did not
  double samples_per_second = 0;
  std::vector<Epoch> epochs;
  std::vector<Slot> slots;
  std::vector<Server> servers;
  VerdictCounts blocks;
  int64_t min_version = 0;
  int64_t max_version = 0;
  Distribution lag;
  Distribution clock_gap;
  std::vector<Check> checks;
  // Processes that had died and were started again; known to `psctl run` alone.
  int server_restarts = 0;
  int worker_restarts = 0;

  // No check failed.
  bool reconciles() const;
  // The evaluation of the latest epoch that has one.
  const Epoch* last_evaluated() const;
  const Epoch* best_evaluated() const;
};

// Puts the report together. A server that did not answer is named with its error, and the checks
// that need its numbers are not judged.
Report BuildReport(const JobStatus& job, const std::vector<ServerAnswer>& servers);

// "asynchronous, staleness bound 4", "synchronous, 1 backup worker".
std::string DescribeConsistency(const ConsistencySpec& spec);

// "finished" of FINISHED.
std::string StateName(SlotBooks::State state);
std::string PhaseName(JobStatus::Phase phase);

}  // namespace torchps

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/proto/report.pb.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/status_line.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/run/progress_view.h"
#include "torchps/tools/run/run_part.h"
#include "torchps/tools/run_plan/fault_plan.h"
#include "torchps/tools/run_plan/plan_run.h"
#include "torchps/tools/run_plan/targets.h"

namespace torchps {

// Runs a job from the start of the first server to the end of the last one. Starts the servers, the
// workers and, if the run uses targets, the evaluator; shows their output; makes the report when
// the workers have finished; then stops the parts. If a part fails or psctl is interrupted, stops
// the workers, reports the job's state and stops the servers. If a resumed job ends before a worker
// makes progress, makes no report, because the report of the previous run still holds.
//
// Restarts a part that dies (torchps/tools/run_plan/launch_plan.h) if that can help: always for a
// worker, and for a server if the server keeps state in a directory. A server restarts at the same
// address.
//
// Runs one event loop on the calling thread: waits for output, process exits and the interrupt. Not
// thread-safe. Run is called once. Borrows the streams and the clock.
class ClusterRun {
 public:
  using OnReport = std::function<void(const Report& report)>;

  struct Options : RunPlan {
    Options() = default;
    explicit Options(RunPlan plan) : RunPlan(std::move(plan)) {}

    std::string log_dir;  // gets a file with the output of each part; may be empty
    ProgressView::Options view;
    absl::Duration start_patience = absl::Seconds(30);  // time for a server to start listening
    absl::Duration stop_grace = absl::Seconds(5);       // between the stop request and SIGKILL
    absl::Duration answer_timeout = absl::Seconds(5);   // for each request of the report
    OnReport on_report;                                 // may be null
    // Called with the server addresses when the servers listen; may be null.
    std::function<void(const std::vector<std::string>& addresses)> on_servers;
    // Called at the first progress of a worker, or when the parts have exited successfully; may be
    // null. From then on, a resumed job uses the settings of this run.
    std::function<void()> on_accepted;
    // Injects faults and observes the parts; may be null. Borrowed.
    FaultPlan* faults = nullptr;
  };
  // Makes the client that requests the report; replaced in tests.
  using Connect = std::function<std::unique_ptr<ClusterClient>(std::vector<std::string>)>;

  // When `interrupt_fd` (-1: unused) becomes readable, the run stops. If it becomes readable again,
  // kills the running parts.
  ClusterRun(Options options, Connect connect, std::ostream& out, std::ostream& error,
             const Clock& clock, int interrupt_fd);

  // Returns psctl's exit code: 0 if the job finished and the parts exited successfully, the code of
  // the failed part if it is in torchps/common/process/command_line.h, and otherwise 1.
  int Run();

  // The first error that ended the run. OK before the end, or if the job finished. CANCELLED: the
  // run was interrupted, or a server was asked to stop.
  const absl::Status& outcome() const { return outcome_; }

 private:
  using Part = RunPart;

  absl::Status StartServers();
  absl::Status StartWorkers();
  absl::Status WaitForWorkers();
  absl::Status MakeReport(bool finished);
  void Accepted();
  // Stops the workers, then the servers. Returns an error if a part was killed or failed.
  absl::Status StopEverything();
  absl::Status StopParts(bool servers);
  absl::Status StopAll(const std::vector<ChildProcess*>& children);

  absl::Status StartPart(std::unique_ptr<Part> part, int index);
  ChildProcess::Options GetProgram(const Part& part) const;
  // Starts the part's process, at first or after a death.
  absl::Status Launch(Part& part);
  // Handles an unexpected exit: schedules a restart, or returns an error.
  absl::Status HandleDeath(Part& part);
  absl::Status Restart(Part& part);
  void InjectFaults();
  // Returns the time of the next restart or fault.
  absl::Duration NextDue() const;
  // Waits for an event and handles it. Returns an error if a part failed or the run was
  // interrupted.
  absl::Status HandleEvents(absl::Duration longest);
  void HandleLine(Part& part, ChildProcess::Stream stream, absl::string_view line);
  void HandleMeasured(absl::string_view line);
  void HandleWorkerStatus(const Part& part, const StatusLine& line);
  void ShowHeldOutput(Part& part, absl::Duration until);
  absl::Status Failure(const Part& part, absl::string_view what);

  std::vector<std::string> ServerAddresses() const;

  const Options options_;
  const Connect connect_;
  std::ostream& out_;
  std::ostream& error_;
  const Clock& clock_;
  const int interrupt_fd_;
  ProgressView view_;
  std::vector<std::unique_ptr<Part>> parts_;
  Targets targets_;
  absl::Status outcome_;
  absl::Status measured_;  // first error in the evaluator's output
  // Time of the first progress of a worker.
  std::optional<absl::Duration> training_since_;
  bool accepted_ = false;
  bool worked_ = false;  // a worker completed a step
  int exit_code_ = 0;    // of the first failure
};

}  // namespace torchps

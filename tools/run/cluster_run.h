#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"
#include "proto/report.pb.h"
#include "tools/base/child_process.h"
#include "tools/base/status_line.h"
#include "tools/report/cluster_client.h"
#include "tools/run/progress_view.h"
#include "tools/run/run_part.h"
#include "tools/run_plan/fault_plan.h"
#include "tools/run_plan/run_plan.h"
#include "tools/run_plan/targets.h"

namespace torchps {

// One run of a job from the first server's start to the last one's end: starts the servers, then
// the workers and, where targets are to be met, the evaluator, shows what they say, makes the
// report when the workers are done, stops everything. If a part fails or psctl is interrupted, the
// workers are stopped first, then the servers, and what the job's books say by then is still
// reported; not if a job was to go on and has not, for that is what the run before has reported.
//
// A part that dies is started again (tools/run_plan/restart_policy.h), a server at the address it
// had, as long as that promises anything: a worker always, a server if it keeps its state in a
// directory.
//
// One thread, one loop, no polling: it waits for output, ends of processes and the interrupt. Not
// thread-safe; Run is called once. Borrows the streams and the clock.
class ClusterRun {
 public:
  using OnReport = std::function<void(const Report& report)>;

  struct Options : RunPlan {
    Options() = default;
    explicit Options(RunPlan plan) : RunPlan(std::move(plan)) {}

    std::string log_dir;  // gets a file with all output of each part; empty: none
    ProgressView::Options view;
    absl::Duration start_patience = absl::Seconds(30);  // for a server to say that it listens
    absl::Duration stop_grace = absl::Seconds(5);       // from asking to killing
    absl::Duration answer_timeout = absl::Seconds(5);   // for each question of the report
    OnReport on_report;                                 // may be null
    // Gets the addresses of the servers once all of them listen; may be null.
    std::function<void(const std::vector<std::string>& addresses)> on_servers;
    // When the first worker has told of progress, or all have ended well; may be null. A job that
    // is resumed has taken this one's terms then.
    std::function<void()> on_accepted;
    // Does harm to the parts on purpose, and watches them; null: nothing of that. Borrowed.
    FaultPlan* faults = nullptr;
  };
  // Makes the client that the report is asked with; tests bring their own.
  using Connect = std::function<std::unique_ptr<ClusterClient>(std::vector<std::string>)>;

  // Readable bytes on `interrupt_fd` (-1: none) mean that the run is to stop; when it becomes
  // readable again meanwhile, what still runs is killed.
  ClusterRun(Options options, Connect connect, std::ostream& out, std::ostream& error,
             const Clock& clock, int interrupt_fd);

  // The exit code for psctl: 0 if the job finished and every part ended well; that of the part
  // that failed if it is one of common/process/exit_codes.h; otherwise 1.
  int Run();

  // The first error that ended the run. OK before the end and after a job that finished. CANCELLED:
  // the run was interrupted, or a server was told to stop.
  const absl::Status& outcome() const { return outcome_; }

 private:
  using Part = RunPart;

  absl::Status StartServers();
  absl::Status StartWorkers();
  absl::Status WaitForWorkers();
  absl::Status MakeReport(bool finished);
  void Accepted();
  // Workers first, then servers. An error if one had to be killed or ended badly.
  absl::Status StopEverything();
  absl::Status StopParts(bool servers);
  absl::Status StopAll(const std::vector<ChildProcess*>& children);

  absl::Status StartPart(std::unique_ptr<Part> part, int index);
  ChildProcess::Options GetProgram(const Part& part) const;
  // Its process: the first one, or the next.
  absl::Status Launch(Part& part);
  // What to do about a part that has ended and should not have. An error: nothing can be done.
  absl::Status HandleDeath(Part& part);
  absl::Status Restart(Part& part);
  void InjectFaults();
  // When there is something to do without any event.
  absl::Duration NextDue() const;
  // Waits for something to happen and deals with it. An error if a part failed or the run was
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
  absl::Status measured_;  // the first thing that was wrong with what the evaluator said
  // Since a worker told of its first progress.
  absl::optional<absl::Duration> training_since_;
  bool accepted_ = false;
  bool worked_ = false;  // a worker has made a step
  int exit_code_ = 0;    // of the first failure
};

}  // namespace torchps

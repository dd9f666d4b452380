#include "torchps/tools/run/cluster_run.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/process/command_line.h"
#include "torchps/tools/run/progress_view.h"
#include "torchps/tools/run/run_part.h"
#include "torchps/tools/run/run_report.h"

namespace torchps {

ClusterRun::ClusterRun(Options options, Connect connect, std::ostream& out, std::ostream& error,
                       const Clock& clock, int interrupt_fd)
    : options_(std::move(options)),
      connect_(std::move(connect)),
      out_(out),
      error_(error),
      clock_(clock),
      interrupt_fd_(interrupt_fd),
      // Rows: each worker, then the evaluator.
      view_(options_.view, static_cast<int>(options_.hosts.workers.size()) + 1, out, clock),
      targets_(options_.targets) {}

int ClusterRun::Run() {
  absl::Status outcome = StartServers();
  if (outcome.ok()) outcome = StartWorkers();
  if (outcome.ok()) outcome = WaitForWorkers();
  const bool finished = outcome.ok();
  if (finished) Accepted();
  if (!finished) {
    if (exit_code_ == 0) exit_code_ = static_cast<int>(ExitCodeFor(outcome));
    // The report needs the servers, so only the workers stop here.
    StopParts(/*servers=*/false).IgnoreError();
  }
  const bool went_on = accepted_ || !options_.launch.resume;
  const absl::Status report = went_on ? MakeReport(finished) : absl::OkStatus();
  if (finished && report.ok() && options_.launch.resume && !worked_) {
    out_ << "\nthe job had already ended, so there was nothing to train; a larger training.epochs "
            "continues it"
         << std::endl;
  }
  const absl::Status stopped = StopEverything();
  for (const absl::Status& status : {outcome, report, stopped}) {
    if (status.ok()) continue;
    outcome_ = status;
    error_ << "psctl: " << status.message() << std::endl;
    return exit_code_ != 0 ? exit_code_ : static_cast<int>(ExitCodeFor(status));
  }
  return static_cast<int>(ExitCode::kOk);
}

absl::Status ClusterRun::StartServers() {
  for (size_t i = 0; i < options_.hosts.servers.size(); ++i) {
    auto part = std::make_unique<Part>(options_.restarts);
    part->is_server = true;
    const int index = static_cast<int>(i);
    if (absl::Status started = StartPart(std::move(part), index); !started.ok()) return started;
  }
  const absl::Duration deadline = clock_.Now() + options_.start_patience;
  const auto silent = [](const auto& part) { return part->address.empty(); };
  for (;;) {
    const auto waiting_for = std::find_if(parts_.begin(), parts_.end(), silent);
    if (waiting_for == parts_.end()) return absl::OkStatus();
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) {
      return Failure(**waiting_for, absl::StrCat("took longer than ",
                                                 absl::FormatDuration(options_.start_patience),
                                                 " to start listening"));
    }
    if (const absl::Status status = HandleEvents(left); !status.ok()) return status;
  }
}

absl::Status ClusterRun::StartWorkers() {
  if (options_.on_servers) options_.on_servers(ServerAddresses());
  for (const std::string& line :
       DescribeRun(options_.job, options_.launch, options_.hosts, ServerAddresses())) {
    view_.Print(line);
  }
  for (size_t i = 0; i < options_.hosts.workers.size(); ++i) {
    const int slot = static_cast<int>(i);
    const int stages = static_cast<int>(options_.hosts.workers[i].stages.size());
    for (int stage = stages > 0 ? 0 : -1; stage < stages; ++stage) {
      auto part = std::make_unique<Part>(options_.restarts);
      part->stage = stage;
      if (absl::Status started = StartPart(std::move(part), slot); !started.ok()) return started;
    }
    if (options_.view.terminal) view_.SetRow(slot, absl::StrCat("worker ", slot, "   starting"));
  }
  if (options_.launch.evaluate_every.empty()) return absl::OkStatus();
  auto evaluator = std::make_unique<Part>(options_.restarts);
  evaluator->is_evaluator = true;
  return StartPart(std::move(evaluator), static_cast<int>(options_.hosts.workers.size()));
}

absl::Status ClusterRun::WaitForWorkers() {
  // The report needs the servers, so this also waits for restarting servers.
  const auto working = [](const auto& part) {
    return part->is_server ? !part->listening : !part->ended_well();
  };
  while (std::any_of(parts_.begin(), parts_.end(), working)) {
    const bool held = std::any_of(parts_.begin(), parts_.end(),
                                  [](const auto& part) { return part->buffered_output.waiting(); });
    const absl::Status status =
        HandleEvents(held ? BufferedOutput::kHold : absl::InfiniteDuration());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ClusterRun::MakeReport(bool finished) {
  const std::vector<std::string> addresses = ServerAddresses();
  const bool all_listen = std::count(addresses.begin(), addresses.end(), "") == 0;
  if (addresses.empty() || !all_listen) return absl::OkStatus();
  PartRestarts restarts;
  for (const auto& part : parts_) {
    if (!part->is_evaluator) restarts[part->name()] = part->restarts.restarts();
  }
  const absl::StatusOr<std::optional<Report>> report = AskForReport(
      *connect_(addresses), addresses[0], finished, options_.answer_timeout, restarts, targets_);
  if (!report.ok() || !report->has_value()) return report.status();
  if (options_.on_report) options_.on_report(**report);
  const absl::Status shown = ShowReport(**report, options_.report_file, out_);
  if (!shown.ok()) {
    // Run() prints only the first failure. If the run failed before the report, this is not the
    // first.
    if (!finished) error_ << "psctl: " << shown.message() << std::endl;
    return shown;
  }
  if ((*report)->has_failed()) {
    exit_code_ =
        static_cast<int>((*report)->has_model_not_kept() ? ExitCode::kFailed : ExitCode::kDiverged);
  }
  return JudgeReport(**report, finished);
}

absl::Status ClusterRun::StopEverything() {
  const absl::Status workers = StopParts(/*servers=*/false);
  const absl::Status servers = StopParts(/*servers=*/true);
  return workers.ok() ? servers : workers;
}

absl::Status ClusterRun::StopParts(bool servers) {
  std::vector<ChildProcess*> running;
  for (const auto& part : parts_) {
    if (part->is_server == servers && part->process->running()) {
      running.push_back(part->process.get());
    }
  }
  if (!servers || running.empty()) return StopAll(running);
  // Stops server 0 first: it takes the last checkpoint of the job.
  const absl::Status first = StopAll({running.front()});
  running.erase(running.begin());
  const absl::Status others = StopAll(running);
  return first.ok() ? others : first;
}

absl::Status ClusterRun::StopAll(const std::vector<ChildProcess*>& children) {
  StopChildren(
      children, interrupt_fd_, options_.stop_grace, clock_,
      [this](const ChildProcess& child, ChildProcess::Stream stream, absl::string_view line) {
        for (const auto& part : parts_) {
          if (part->process.get() == &child) HandleLine(*part, stream, line);
        }
      });
  for (const auto& part : parts_) {
    const bool asked =
        std::find(children.begin(), children.end(), part->process.get()) != children.end();
    if (asked && part->process->exit_code() != 0) {
      return Failure(*part, absl::StrCat("did not stop cleanly: it ", part->process->ExitReason()));
    }
  }
  return absl::OkStatus();
}

absl::Status ClusterRun::StartPart(std::unique_ptr<Part> part, int index) {
  part->index = index;
  part->OpenLog(options_.log_dir);
  if (const absl::Status started = Launch(*part); !started.ok()) return started;
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status ClusterRun::Launch(Part& part) {
  ChildProcess::Options program = GetProgram(part);
  if (options_.faults != nullptr && part.is_worker()) {
    const auto more = options_.faults->WorkerEnvironment(part.index, ServerAddresses());
    if (!more.ok()) return more.status();
    program.environment.insert(program.environment.end(), more->begin(), more->end());
  }
  absl::StatusOr<std::unique_ptr<ChildProcess>> process = ChildProcess::Start(std::move(program));
  if (!process.ok()) return process.status();
  part.process = *std::move(process);
  return absl::OkStatus();
}

ChildProcess::Options ClusterRun::GetProgram(const Part& part) const {
  if (part.is_server)
    return part.ServerIn(options_, training_since_.has_value(), ServerAddresses());
  if (part.is_evaluator) return EvaluatorProgram(options_.launch, ServerAddresses());
  return WorkerProgram(options_.launch, part.index, options_.hosts.workers[part.index],
                       ServerAddresses(), part.seen_dead, part.stage);
}

absl::Status ClusterRun::HandleDeath(Part& part) {
  // Servers exit with code 0 only if asked to stop, so the message mentions that.
  const std::string how =
      part.ended_well() ? "ended before the job: it was asked to stop, for example by 'psctl stop'"
                        : part.process->ExitReason();
  part.listening = false;
  if (options_.faults != nullptr && !part.is_evaluator) {
    options_.faults->OnDeath(part.name(), clock_.Now());
  }
  const bool keeps_state = !part.is_server || options_.launch.keeps_state();
  const bool was_there = !part.is_server || !part.address.empty();
  if (!was_there || !keeps_state ||
      !IsWorthRestarting(part.process->exit_code(), part.restarts.restarts() > 0)) {
    const absl::Status failure = Failure(part, how);
    return part.is_server && part.ended_well() ? absl::CancelledError(failure.message()) : failure;
  }
  const std::optional<absl::Duration> delay = part.restarts.Died(clock_.Now());
  if (!delay.has_value()) return Failure(part, how + StaysDownText(options_.restarts));
  ShowHeldOutput(part, absl::InfiniteDuration());
  part.buffered_output.Clear();
  view_.Print(absl::StrCat(part.process->name(), " ", how, "; restarting it",
                           part.is_server ? absl::StrCat(" at ", part.address) : "", " (restart ",
                           part.restarts.restarts(), ")"));
  part.restart_at = clock_.Now() + *delay;
  // Only a signal (exit code above 128) that ended a local worker proves that the worker is gone. A
  // remote worker may outlive ssh, and after a lost lease another process may use the slot.
  part.seen_dead =
      part.leads() && part.PlaceIn(options_.hosts).host.empty() && part.process->exit_code() > 128;
  return absl::OkStatus();
}

absl::Status ClusterRun::Restart(Part& part) {
  part.restart_at.reset();
  if (std::exchange(part.disk_lost, false)) {
    part.has_lost_disk = true;
    if (absl::Status gone = DeleteServerDirectory(options_.launch, part.index); !gone.ok()) {
      return gone;
    }
  }
  if (const absl::Status started = Launch(part); !started.ok()) return started;
  if (options_.faults != nullptr && part.is_worker()) {
    options_.faults->OnReturn(part.name(), "", clock_.Now());
  }
  return absl::OkStatus();
}

void ClusterRun::InjectFaults() {
  if (options_.faults == nullptr || !training_since_.has_value()) return;
  for (const Fault& fault : options_.faults->Take(clock_.Now() - *training_since_)) {
    if (!fault.is_signal()) {
      options_.faults->OnFault(fault, clock_.Now());
      continue;
    }
    for (const auto& part : parts_) {
      if (part->is_evaluator || !(part->name() == fault.part)) continue;
      // Skips parts that do not run.
      if (!part->process->running() || (part->is_server && !part->listening)) continue;
      if (fault.kind == Fault::Kind::kLoseDisk) part->disk_lost = true;
      part->process->Signal(fault.signal());
      options_.faults->OnFault(fault, clock_.Now());
    }
  }
}

absl::Duration ClusterRun::NextDue() const {
  absl::Duration due = absl::InfiniteDuration();
  for (const auto& part : parts_) {
    if (part->restart_at.has_value()) due = std::min(due, *part->restart_at);
  }
  if (options_.faults != nullptr && training_since_.has_value()) {
    due = std::min(due, *training_since_ + options_.faults->NextAt());
  }
  return due;
}

absl::Status ClusterRun::HandleEvents(absl::Duration longest) {
  std::vector<ChildProcess*> all;
  for (const auto& part : parts_) all.push_back(part->process.get());
  const absl::Duration wait =
      std::max(absl::ZeroDuration(), std::min(longest, NextDue() - clock_.Now()));
  const bool interrupted = WaitForActivity(all, interrupt_fd_, wait);
  char ignored[4096];
  while (interrupted && read(interrupt_fd_, ignored, sizeof(ignored)) < 0 && errno == EINTR) {
  }
  if (interrupted || !out_.good()) {
    exit_code_ = static_cast<int>(ExitCode::kFailed);
    return absl::CancelledError(
        absl::StrCat(interrupted ? "interrupted" : "standard output was closed",
                     "; everything has been stopped"));
  }
  for (const auto& part : parts_) {
    part->process->Collect([&](ChildProcess::Stream stream, absl::string_view line) {
      HandleLine(*part, stream, line);
    });
  }
  // Servers precede workers in parts_, because a dead server also makes workers fail.
  for (const auto& part : parts_) {
    absl::Status status;
    if (part->restart_at.has_value()) {
      if (clock_.Now() >= *part->restart_at) status = Restart(*part);
    } else if (!part->process->running() && (part->is_server || !part->ended_well())) {
      status = HandleDeath(*part);
    }
    if (!status.ok()) return status;
  }
  if (!measured_.ok()) return measured_;
  InjectFaults();
  for (const auto& part : parts_) ShowHeldOutput(*part, clock_.Now() - BufferedOutput::kHold);
  return absl::OkStatus();
}

void ClusterRun::HandleLine(Part& part, ChildProcess::Stream stream, absl::string_view line) {
  if (part.log.is_open()) part.log << line << std::endl;
  if (stream == ChildProcess::Stream::kError) {
    part.buffered_output.Add(clock_.Now(), line);
    return;
  }
  if (part.is_evaluator && IsMeasured(line)) return HandleMeasured(line);
  const std::optional<StatusLine> status = ParseStatusLine(line);
  if (!status.has_value()) {
    // All other status lines are for users who start the programs without psctl.
    if (absl::StartsWith(line, "torchps_")) return;
    view_.Print(absl::StrCat(part.process->name(), ": ", line));
  } else if (part.is_server && status->event == "ready") {
    const absl::StatusOr<std::string> address =
        ReachableAddress(options_.hosts.servers[part.index], status->Field("address"));
    // Without an address the server counts as not started, and the timeout message names it.
    if (!address.ok()) return;
    part.address = *address;
    part.listening = true;
    if (options_.faults != nullptr) {
      options_.faults->OnReturn(part.name(), part.address, clock_.Now());
    }
  } else if (part.leads()) {
    HandleWorkerStatus(part, *status);
  }
}

void ClusterRun::HandleMeasured(absl::string_view line) {
  const absl::StatusOr<Targets::Heard> heard = targets_.Hear(line);
  if (!heard.ok()) {
    if (measured_.ok()) measured_ = heard.status();
    return;
  }
  for (const std::string& met : heard->lines) view_.Print(met);
  view_.SetRow(static_cast<int>(options_.hosts.workers.size()),
               absl::StrCat("evaluator  ", heard->row));
}

void ClusterRun::Accepted() {
  if (!accepted_ && options_.on_accepted != nullptr) options_.on_accepted();
  accepted_ = true;
}

void ClusterRun::HandleWorkerStatus(const Part& part, const StatusLine& line) {
  const std::string name = absl::StrCat("worker ", part.index, "   ");
  const int epochs = options_.job.training().epochs();
  if (line.event == "progress") {
    Accepted();
    if (!training_since_.has_value()) training_since_ = clock_.Now();
    if (options_.faults != nullptr) options_.faults->OnProgress(part.index, clock_.Now());
    view_.SetRow(part.index, name + ProgressText(line, epochs));
  } else if (line.event == "done") {
    if (line.Field("pushes") != "0") worked_ = true;
    if (options_.faults != nullptr) options_.faults->OnDone(part.index, clock_.Now());
    view_.FinishRow(part.index, absl::StrCat(name, "done after ", line.Field("pushes"), " steps"));
  } else if (line.event == "evaluation") {
    view_.Print(EvaluationText(line, epochs));
  }
}

void ClusterRun::ShowHeldOutput(Part& part, absl::Duration until) {
  for (const std::string& line : part.buffered_output.Take(until)) {
    view_.Print(absl::StrCat(part.process->name(), ": ", line));
  }
}

absl::Status ClusterRun::Failure(const Part& part, absl::string_view what) {
  if (exit_code_ == 0) exit_code_ = part.FailureCode();
  return absl::InternalError(part.FailureText(what));
}

std::vector<std::string> ClusterRun::ServerAddresses() const {
  std::vector<std::string> addresses;
  for (const auto& part : parts_) {
    if (part->is_server) addresses.push_back(part->address);
  }
  return addresses;
}

}  // namespace torchps

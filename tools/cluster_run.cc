#include "tools/cluster_run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/exit_codes.h"
#include "tools/format.h"
#include "tools/report_json.h"
#include "tools/report_text.h"

namespace torchps {
namespace {

// Long enough for a process to end after its last words (unloading libtorch takes its time), short
// enough not to be missed.
constexpr absl::Duration kHoldComplaints = absl::Seconds(1);
constexpr size_t kErrorsRemembered = 5;

absl::string_view WithoutProgramName(absl::string_view line) {
  absl::ConsumePrefix(&line, "ps_worker: ");
  absl::ConsumePrefix(&line, "ps_server: ");
  return line;
}

// "epoch 2/5   step    340   loss 0.1234    3,210 samples/s   waiting  4 %"
std::string ProgressText(const StatusLine& line, int epochs) {
  std::string text =
      absl::StrFormat("epoch %s/%d   step %6s", line.Field("epoch"), epochs, line.Field("step"));
  if (const auto loss = line.Number("loss")) absl::StrAppendFormat(&text, "   loss %.4f", *loss);
  if (const auto accuracy = line.Number("accuracy")) {
    absl::StrAppend(&text, "   accuracy ", FormatPercent(*accuracy, 1));
  }
  if (const auto rate = line.Number("samples_per_s")) {
    absl::StrAppendFormat(&text, "   %8s samples/s", WithThousands(std::llround(*rate)));
  }
  if (const auto share = line.Number("wait_share")) {
    absl::StrAppendFormat(&text, "   waiting %3.0f %%", *share * 100);
  }
  return text;
}

}  // namespace

ClusterRun::ClusterRun(Options options, Connect connect, std::ostream& out, std::ostream& error,
                       const Clock& clock, int interrupt_fd)
    : options_(std::move(options)),
      connect_(std::move(connect)),
      out_(out),
      error_(error),
      clock_(clock),
      interrupt_fd_(interrupt_fd),
      view_(options_.view, static_cast<int>(options_.hosts.workers.size()), out, clock) {}

int ClusterRun::Run() {
  absl::Status outcome = StartServers();
  if (outcome.ok()) outcome = StartWorkers();
  if (outcome.ok()) outcome = WaitForWorkers();
  const bool finished = outcome.ok();
  if (!finished) {
    if (exit_code_ == 0) exit_code_ = static_cast<int>(ExitCodeFor(outcome));
    // The job's books outlive its workers, but not its servers.
    StopParts(/*servers=*/false).IgnoreError();
  }
  const absl::Status report = MakeReport(finished);
  const absl::Status stopped = StopEverything();

  for (const absl::Status& status : {outcome, report, stopped}) {
    if (status.ok()) continue;
    error_ << "psctl: " << status.message() << std::endl;
    return exit_code_ != 0 ? exit_code_ : static_cast<int>(ExitCodeFor(status));
  }
  return static_cast<int>(ExitCode::kOk);
}

absl::Status ClusterRun::StartServers() {
  for (size_t i = 0; i < options_.hosts.servers.size(); ++i) {
    const int index = static_cast<int>(i);
    const absl::Status started =
        StartPart(ServerProgram(options_.launch, index, options_.hosts.servers[i]),
                  /*is_server=*/true, index);
    if (!started.ok()) return started;
  }
  const absl::Duration deadline = clock_.Now() + options_.start_patience;
  const auto silent = [](const auto& part) { return part->address.empty(); };
  for (;;) {
    const auto waiting_for = std::find_if(parts_.begin(), parts_.end(), silent);
    if (waiting_for == parts_.end()) return absl::OkStatus();
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) {
      return Failure(**waiting_for, absl::StrCat("did not say within ",
                                                 absl::FormatDuration(options_.start_patience),
                                                 " that it listens"));
    }
    if (const absl::Status status = HandleEvents(left); !status.ok()) return status;
  }
}

absl::Status ClusterRun::StartWorkers() {
  SayWhatRuns();
  const std::vector<std::string> addresses = ServerAddresses();
  for (size_t i = 0; i < options_.hosts.workers.size(); ++i) {
    const int slot = static_cast<int>(i);
    const absl::Status started =
        StartPart(WorkerProgram(options_.launch, slot, options_.hosts.workers[i], addresses),
                  /*is_server=*/false, slot);
    if (!started.ok()) return started;
    if (options_.view.terminal) view_.SetRow(slot, absl::StrCat("worker ", slot, "   starting"));
  }
  return absl::OkStatus();
}

absl::Status ClusterRun::WaitForWorkers() {
  const auto working = [](const auto& part) {
    return !part->is_server && part->process->running();
  };
  while (std::any_of(parts_.begin(), parts_.end(), working)) {
    const bool complaints = std::any_of(parts_.begin(), parts_.end(),
                                        [](const auto& part) { return !part->held.empty(); });
    const absl::Status status =
        HandleEvents(complaints ? kHoldComplaints : absl::InfiniteDuration());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ClusterRun::MakeReport(bool finished) {
  const std::vector<std::string> addresses = ServerAddresses();
  const bool all_listen = std::none_of(addresses.begin(), addresses.end(),
                                       [](const std::string& a) { return a.empty(); });
  if (addresses.empty() || !all_listen) return absl::OkStatus();
  const std::unique_ptr<ClusterClient> cluster = connect_(addresses);
  const absl::StatusOr<JobStatus> job =
      cluster->GetJobStatus(/*wait_until_done=*/false, options_.answer_timeout);
  if (!job.ok()) {
    return absl::Status(job.status().code(), absl::StrCat("no report: server 0 at ", addresses[0],
                                                          ": ", job.status().message()));
  }
  if (job->phase() == JobStatus::NO_JOB) {
    return finished ? absl::InternalError("the workers ended without having submitted a job")
                    : absl::OkStatus();
  }
  const Report report = BuildReport(*job, AskAllServers(*cluster, options_.answer_timeout));
  if (!report.epochs.empty()) out_ << "\n" << ReportText(report) << std::flush;
  if (!options_.report_file.empty()) {
    const absl::Status written = WriteFileAtomically(options_.report_file, ReportJson(report));
    if (!written.ok()) return written;
    out_ << "\nreport: " << options_.report_file << std::endl;
  }
  if (finished && !report.finished) {
    return absl::InternalError(
        absl::StrCat("all workers ended, but the job is still ", report.phase));
  }
  return absl::OkStatus();
}

absl::Status ClusterRun::StopEverything() {
  const absl::Status workers = StopParts(/*servers=*/false);
  const absl::Status servers = StopParts(/*servers=*/true);
  return workers.ok() ? servers : workers;
}

absl::Status ClusterRun::StopParts(bool servers) {
  std::vector<ChildProcess*> running;
  for (ChildProcess* process : Processes(servers)) {
    if (process->running()) running.push_back(process);
  }
  StopChildren(
      running, interrupt_fd_, options_.stop_grace, clock_,
      [this](const ChildProcess& child, ChildProcess::Stream stream, absl::string_view line) {
        for (const auto& part : parts_) {
          if (part->process.get() == &child) HandleLine(*part, stream, line);
        }
      });
  for (const auto& part : parts_) {
    const bool asked =
        std::find(running.begin(), running.end(), part->process.get()) != running.end();
    if (asked && part->process->exit_code() != 0) {
      return Failure(*part, absl::StrCat("did not stop well: it ", part->process->ExitReason()));
    }
  }
  return absl::OkStatus();
}

absl::Status ClusterRun::StartPart(ChildProcess::Options program, bool is_server, int index) {
  absl::StatusOr<std::unique_ptr<ChildProcess>> process = ChildProcess::Start(std::move(program));
  if (!process.ok()) return process.status();
  auto part = std::make_unique<Part>();
  part->process = *std::move(process);
  part->is_server = is_server;
  part->index = index;
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status ClusterRun::HandleEvents(absl::Duration longest) {
  std::vector<ChildProcess*> all;
  for (const auto& part : parts_) all.push_back(part->process.get());
  if (WaitForActivity(all, interrupt_fd_, longest)) {
    char ignored[4096];
    while (read(interrupt_fd_, ignored, sizeof(ignored)) < 0 && errno == EINTR) {
    }
    exit_code_ = static_cast<int>(ExitCode::kFailed);
    return absl::CancelledError("interrupted; everything has been stopped");
  }
  for (const auto& part : parts_) {
    part->process->Collect([&](ChildProcess::Stream stream, absl::string_view line) {
      HandleLine(*part, stream, line);
    });
  }
  // Servers come first in parts_: when one dies, its workers' complaints are consequences.
  for (const auto& part : parts_) {
    if (part->process->running()) continue;
    if (part->is_server || part->process->exit_code() != 0) {
      return Failure(*part, part->process->ExitReason());
    }
  }
  for (const auto& part : parts_) ShowHeldComplaints(*part, clock_.Now() - kHoldComplaints);
  return absl::OkStatus();
}

void ClusterRun::HandleLine(Part& part, ChildProcess::Stream stream, absl::string_view line) {
  if (stream == ChildProcess::Stream::kError) {
    part.last_errors.emplace_back(line);
    if (part.last_errors.size() > kErrorsRemembered) part.last_errors.pop_front();
    part.held.emplace_back(clock_.Now(), line);
    return;
  }
  const absl::optional<StatusLine> status = ParseStatusLine(line);
  if (!status.has_value()) {
    // Other lines of our own programs are for whoever runs them by hand.
    if (absl::StartsWith(line, "torchps_")) return;
    view_.Say(absl::StrCat(part.process->name(), ": ", line));
  } else if (part.is_server && status->event == "ready") {
    const absl::StatusOr<std::string> address =
        ReachableAddress(options_.hosts.servers[part.index], status->Field("address"));
    // Without an address the server stays one that is waited for, and is named in the end.
    if (address.ok()) part.address = *address;
  } else if (!part.is_server) {
    HandleWorkerStatus(part, *status);
  }
}

void ClusterRun::HandleWorkerStatus(const Part& part, const StatusLine& line) {
  const std::string name = absl::StrCat("worker ", part.index, "   ");
  const int epochs = options_.job.training().epochs();
  if (line.event == "progress") {
    view_.SetRow(part.index, name + ProgressText(line, epochs));
  } else if (line.event == "done") {
    view_.FinishRow(part.index, absl::StrCat(name, "done after ", line.Field("pushes"), " steps"));
  } else if (line.event == "evaluation") {
    std::string text = absl::StrCat("epoch ", line.Field("epoch"), "/", epochs);
    if (const auto accuracy = line.Number("accuracy")) {
      absl::StrAppend(&text, "   test accuracy ", FormatPercent(*accuracy, 2));
    }
    if (const auto loss = line.Number("loss")) {
      absl::StrAppendFormat(&text, "   test loss %.4f", *loss);
    }
    if (const auto samples = line.Number("samples")) {
      absl::StrAppend(&text, "   on ", WithThousands(std::llround(*samples)), " samples");
    }
    view_.Say(text);
  }
}

void ClusterRun::ShowHeldComplaints(Part& part, absl::Duration before) {
  while (!part.held.empty() && part.held.front().first <= before) {
    view_.Say(
        absl::StrCat(part.process->name(), ": ", WithoutProgramName(part.held.front().second)));
    part.held.pop_front();
  }
}

absl::Status ClusterRun::Failure(const Part& part, absl::string_view what) {
  if (exit_code_ == 0) {
    const int code = part.process->running() ? 0 : part.process->exit_code();
    const bool ours = code >= static_cast<int>(ExitCode::kFailed) &&
                      code <= static_cast<int>(ExitCode::kAddressInUse);
    exit_code_ = ours ? code : static_cast<int>(ExitCode::kFailed);
  }
  std::string text = absl::StrCat(part.process->name(), " ", what);
  // What has not been shown yet; if all has, its last words once more.
  std::vector<std::string> words;
  for (const auto& [time, line] : part.held) words.push_back(line);
  if (words.empty() && !part.last_errors.empty()) words.push_back(part.last_errors.back());
  for (const std::string& word : words) absl::StrAppend(&text, "\n  ", WithoutProgramName(word));
  return absl::InternalError(text);
}

void ClusterRun::SayWhatRuns() {
  const JobSpec& job = options_.job;
  view_.Say(absl::StrCat(job.name(), ": ", job.model().name(), " on ", job.data().source(), ", ",
                         Count(job.training().epochs(), "epoch"), ", ",
                         DescribeConsistency(job.consistency())));
  const std::vector<std::string> addresses = ServerAddresses();
  std::string workers = Count(static_cast<int64_t>(options_.hosts.workers.size()), "worker");
  if (options_.launch.threads > 0) {
    absl::StrAppend(&workers, " with ", Count(options_.launch.threads, "thread"), " each");
  }
  view_.Say(absl::StrCat(Count(static_cast<int64_t>(addresses.size()), "server"), ", ", workers));
  view_.Say(
      absl::StrCat("watch it: psctl status --watch --servers=", absl::StrJoin(addresses, ",")));
  view_.Say("");
}

std::vector<ChildProcess*> ClusterRun::Processes(bool servers) const {
  std::vector<ChildProcess*> processes;
  for (const auto& part : parts_) {
    if (part->is_server == servers) processes.push_back(part->process.get());
  }
  return processes;
}

std::vector<std::string> ClusterRun::ServerAddresses() const {
  std::vector<std::string> addresses;
  for (const auto& part : parts_) {
    if (part->is_server) addresses.push_back(part->address);
  }
  return addresses;
}

}  // namespace torchps

#include "torchps/tools/run_plan/launch_plan.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "torchps/common/check.h"
#include "torchps/common/process/command_line.h"
#include "torchps/tools/base/format.h"

namespace torchps {

std::optional<absl::Duration> RestartPolicy::Died(absl::Duration now) {
  while (!recent_.empty() && recent_.front() <= now - options_.window) recent_.pop_front();
  if (static_cast<int>(recent_.size()) >= options_.most) return std::nullopt;
  absl::Duration delay = options_.first_delay;
  for (size_t i = 0; i < recent_.size() && delay < options_.longest_delay; ++i) delay *= 2;
  recent_.push_back(now);
  ++restarts_;
  return std::min(delay, options_.longest_delay);
}

std::string StaysDownText(const RestartPolicy::Options& options) {
  if (options.most == 0) return "";
  return absl::StrCat(", as it did ", Count(options.most, "time"), " within ",
                      absl::FormatDuration(options.window), " before, so it is not restarted");
}

bool IsWorthRestarting(int exit_code, bool started_again) {
  if (exit_code > 128) return true;
  if (exit_code == static_cast<int>(ExitCode::kLostSlot)) return true;
  if (exit_code == static_cast<int>(ExitCode::kUnreachable)) return true;
  return started_again && exit_code == static_cast<int>(ExitCode::kAddressInUse);
}

namespace {

bool IsIpv6(absl::string_view host) { return absl::StrContains(host, ':'); }

// Returns `command`, run through ssh if `place` is another machine. The remote program reads
// `input` from descriptor 3.
ChildProcess::Options ProgramAt(const LaunchOptions& options, const Place& place,
                                const std::vector<std::string>& command, const std::string& input) {
  ChildProcess::Options program;
  if (place.host.empty()) {
    program.command = command;
    return program;
  }
  program.stop_by_stdin = true;
  std::vector<std::string> quoted;
  for (const std::string& word : command) quoted.push_back(ShellQuoted(word));
  // ssh passes one string to the remote shell. `exec` replaces the shell, so that the program
  // itself sees the end of the input.
  std::string line = absl::StrCat("exec ", absl::StrJoin(quoted, " "));
  if (!input.empty()) {
    constexpr char kEnd[] = "END_OF_TORCHPS_JOB";
    absl::StrAppend(&line, " 3<<'", kEnd, "'\n", input, input.back() == '\n' ? "" : "\n", kEnd,
                    "\n");
  }
  program.command = CommandAt(options, place.host, line);
  return program;
}

}  // namespace

std::vector<std::string> CommandAt(const LaunchOptions& options, absl::string_view host,
                                   const std::string& line) {
  std::vector<std::string> command = options.ssh;
  // ssh would resolve "[::1]" as a name.
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  command.emplace_back(host);
  command.push_back(line);
  return command;
}

std::string ServerDirectory(const LaunchOptions& options, int index) {
  if (options.dir.empty() || !options.disks_apart) return options.dir;
  return absl::StrCat(options.dir, "/disk-", index);
}

absl::Status DeleteServerDirectory(const LaunchOptions& options, int index) {
  TPS_CHECK(options.disks_apart && !options.dir.empty(),
            "other servers keep their files there, too");
  const std::string directory = ServerDirectory(options, index);
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot delete ", directory, ": ", error.message()));
}

ChildProcess::Options ServerProgram(const LaunchOptions& options, int index, const Place& place) {
  const bool beyond_loopback = !IsLoopback(place.host);
  const char* const interfaces = IsIpv6(place.host) ? (beyond_loopback ? "[::]" : "[::1]")
                                                    : (beyond_loopback ? "0.0.0.0" : "127.0.0.1");
  std::vector<std::string> command = {options.server_binary,
                                      absl::StrCat("--listen=", interfaces, ":", place.port),
                                      "--exit_with_parent"};
  if (beyond_loopback && options.insecure) command.push_back("--insecure");
  if (!options.certs.empty()) command.push_back(absl::StrCat("--certs=", options.certs));
  if (const std::string dir = ServerDirectory(options, index); !dir.empty()) {
    command.push_back(absl::StrCat("--dir=", dir));
  }
  if (index == 0 && !options.model_dir.empty()) {
    command.push_back(absl::StrCat("--model_dir=", options.model_dir));
  }
  if (index == 0 && !options.copies_at.empty()) {
    command.push_back(absl::StrCat("--copies_at=", options.copies_at));
  }
  if (const auto found = options.slow_disks.find(index); found != options.slow_disks.end()) {
    command.push_back(absl::StrCat("--slow_disk=", found->second));
  }
  // Only the coordinator, in server 0, decides where to resume.
  if (options.resume && index == 0) command.push_back("--resume");
  ChildProcess::Options program = ProgramAt(options, place, command, "");
  program.name = absl::StrCat("server ", index);
  return program;
}

ChildProcess::Options WorkerProgram(const LaunchOptions& options, int slot, const Place& worker,
                                    const std::vector<std::string>& server_addresses,
                                    bool predecessor_died, int stage) {
  const Place& place = stage < 0 ? worker : worker.stages[static_cast<size_t>(stage)];
  const bool elsewhere = !place.host.empty();
  std::vector<std::string> command = {
      options.worker_binary, absl::StrCat("--servers=", absl::StrJoin(server_addresses, ",")),
      absl::StrCat("--job=", elsewhere ? "/dev/fd/3" : options.job_file),
      absl::StrCat("--slot=", slot), "--exit_with_parent"};
  if (predecessor_died) command.push_back("--predecessor_died");
  if (stage >= 0) {
    command.push_back(absl::StrCat("--stage=", stage));
    command.push_back(absl::StrCat("--replica=", absl::StrJoin(StageAddresses(worker), ",")));
  }
  for (const std::string& set : options.set) command.push_back(absl::StrCat("--set=", set));
  const auto pass_on = [&](absl::string_view flag, const std::string& value) {
    if (!value.empty()) command.push_back(absl::StrCat("--", flag, "=", value));
  };
  pass_on("data", options.data);
  if (options.download) command.push_back("--download");
  pass_on("mirrors", options.mirrors);
  const std::string& device = place.device.empty() ? options.device : place.device;
  pass_on("device", device);
  if (device == "cuda" && place.gpu_number >= 0) {
    command.push_back(absl::StrCat("--gpu_number=", place.gpu_number));
  }
  pass_on("patience", options.patience);
  pass_on("certs", options.certs);
  if (options.threads > 0) command.push_back(absl::StrCat("--threads=", options.threads));
  if (options.loader_threads > 0) {
    command.push_back(absl::StrCat("--loader_threads=", options.loader_threads));
  }
  if (const auto found = options.slow_workers.find(slot); found != options.slow_workers.end()) {
    command.push_back(absl::StrCat("--slow=", found->second));
  }
  command.insert(command.end(), options.worker_flags.begin(), options.worker_flags.end());
  ChildProcess::Options program =
      ProgramAt(options, place, command, elsewhere ? options.job_text : "");
  program.name = absl::StrCat("worker ", slot);
  if (stage >= 0) absl::StrAppend(&program.name, " stage ", stage);
  // By default OpenMP threads spin while they wait for each other. If other processes use the
  // cores, a spinning thread delays the threads that it waits for (docs/operate.md).
  if (!elsewhere && options.threads > 1) program.environment = {"OMP_WAIT_POLICY=passive"};
  return program;
}

ChildProcess::Options EvaluatorProgram(const LaunchOptions& options,
                                       const std::vector<std::string>& server_addresses) {
  ChildProcess::Options program;
  program.name = "evaluator";
  // The evaluator gets the job from the servers.
  program.command = {
      options.worker_binary, absl::StrCat("--servers=", absl::StrJoin(server_addresses, ",")),
      absl::StrCat("--evaluate_every=", options.evaluate_every), "--json", "--exit_with_parent"};
  const auto pass_on = [&](absl::string_view flag, const std::string& value) {
    if (!value.empty()) program.command.push_back(absl::StrCat("--", flag, "=", value));
  };
  pass_on("data", options.data);
  pass_on("device", options.device);
  pass_on("patience", options.patience);
  pass_on("certs", options.certs);
  return program;
}

absl::StatusOr<std::string> ReachableAddress(const Place& place, absl::string_view listening) {
  const size_t colon = listening.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(listening.substr(colon + 1), &port) ||
      port < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", listening, "' is not an address that a server can listen on"));
  }
  if (place.host.empty()) return std::string(listening);
  const bool bare_ipv6 = IsIpv6(place.host) && place.host.front() != '[';
  return bare_ipv6 ? absl::StrCat("[", place.host, "]:", port)
                   : absl::StrCat(place.host, ":", port);
}

}  // namespace torchps

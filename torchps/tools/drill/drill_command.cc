#include "torchps/tools/drill/drill_command.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/common/process/command_line.h"
#include "torchps/storage/slow_file_system.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/base/interrupt.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/tools/run/progress_view.h"
#include "torchps/tools/run/run_command.h"
#include "torchps/tools/run_plan/plan_run.h"
#include "torchps/tools/run_plan/run_flags.h"

namespace torchps {
namespace {

std::string Seconds(const std::optional<absl::Duration>& duration) {
  return duration.has_value() ? absl::StrFormat("%.2f s", absl::ToDoubleSeconds(*duration))
                              : "never";
}

int64_t GetMissing(const Report::Check& check) {
  return std::max<int64_t>(0, check.expected() - check.actual());
}

// Missing() and TooMuch() return by how much the actual number of a comparison is below or above
// the expected one, or "-" if the report did not judge it.
std::string Missing(const Report::Check& check) {
  return check.has_holds() ? WithThousands(GetMissing(check)) : "-";
}
std::string TooMuch(const Report::Check& check) {
  return check.has_holds() ? WithThousands(std::max<int64_t>(0, check.actual() - check.expected()))
                           : "-";
}

std::string VerdictText(const DrillFigures& figures, const std::optional<Report>& report,
                        int exit_code) {
  const std::string failed =
      exit_code == 0 ? "" : absl::StrCat("the run FAILED with exit code ", exit_code, "; ");
  if (!report.has_value()) return absl::StrCat("verdict: ", failed, "no report\n");
  const Report::Reconciles& checks = report->reconciles();
  const int64_t lost = report->rolled_back().pushes();
  const std::string lost_text = checks.kept_gradients().has_holds() || lost > 0
                                    ? WithThousands(lost + GetMissing(checks.kept_gradients()))
                                    : "-";
  return absl::StrCat("verdict: ", failed, "consistency check ",
                      !checks.all()        ? "FAILED"
                      : report->finished() ? "passed"
                                           : "passed so far",
                      "; samples lost ", Missing(checks.samples_used()), ", doubled ",
                      TooMuch(checks.samples_used()),
                      "; longest stall of any worker, hit or not: ", Seconds(figures.longest_stall),
                      "; acknowledged pushes lost ", lost_text, "\n");
}

}  // namespace

std::vector<FlagSpec> DrillFlags() {
  std::vector<FlagSpec> flags;
  for (FlagSpec& flag : RunFlags()) {
    const bool elsewhere = flag.name == "hosts" || flag.name == "ssh" ||
                           flag.name == "remote_binary_dir" || flag.name == "restarts";
    if (!elsewhere) flags.push_back(std::move(flag));
  }
  flags.push_back(
      {"kill", "PART:WHEN",
       "Kills a part with SIGKILL: server:every=5s (a random server, about every 5 s), "
       "worker.2:at=30s (worker 2, once). With --stages, kills one process of a worker: worker.2.1 "
       "is the one with stage 1. Times count from the first progress.",
       true});
  flags.push_back(
      {"lose_disk", "SERVER:WHEN",
       "Kills a server with SIGKILL, deletes its directory and restarts it: server:every=20s. Each "
       "server then uses its own directory, and restores its files from copies "
       "(durability.copies). The next disk is lost only after the copies are complete again.",
       true});
  flags.push_back({"freeze", "PART:WHEN[:for=TIME]",
                   "Freezes a part with SIGSTOP for TIME, by default 1s, like a suspended machine: "
                   "worker:every=8s:for=2s.",
                   true});
  flags.push_back(
      {"partition", "WHOM:WHEN[:for=TIME]",
       "Drops all traffic for TIME, by default 5s, without closing connections: worker:every=20s "
       "(between a worker and a server), worker.1-server.0:at=9s (these two), server:at=9s (a "
       "server and all workers), halves:every=30s (two halves of the job). Workers then reach "
       "servers through relays, without shared memory.",
       true});
  flags.push_back(
      {"reset", "WHOM:WHEN",
       "Resets the connections that WHOM names, as in --partition; new connections work.", true});
  flags.push_back(
      {"half_open", "SERVER:WHEN[:for=TIME]",
       "Opens 600 connections to a server from another address and keeps them for TIME, by default "
       "5s; they send no data, half of a TLS hello or the beginning of a push: server:every=10s.",
       true});
  flags.push_back(
      {"slow_disk", "SERVER:MB[:SYNC|:reads]",
       "Limits the disk of a server to MB megabytes per second, and makes each sync take SYNC, "
       "throughout the run: server:20:100ms (a random server), server.1:5. With :reads, limits "
       "only reads, which slows down only the recovery: server.1:5:reads.",
       true});
  flags.push_back({"seconds", "N", "Seconds after which no more faults begin. Default: 60."});
  flags.push_back({"seed", "N", "The random seed for the parts and times of faults. Default: 1."});
  return flags;
}

// Parses "server:20:100ms" or "server.1:5". The text after the first colon becomes the server's
// flag.
absl::Status PlanSlowDisks(const FlagValues& flags, DrillOptions& options) {
  uint64_t random = options.faults.seed;
  for (const std::string& text : flags.All("slow_disk")) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(text, absl::MaxSplits(':', 1));
    const std::pair<absl::string_view, absl::string_view> name =
        absl::StrSplit(words.first, absl::MaxSplits('.', 1));
    auto server =
        static_cast<int>(UniformBelow(random, static_cast<uint64_t>(options.faults.servers)));
    const bool named = name.first != words.first;
    if (name.first != "server" || (named && (!absl::SimpleAtoi(name.second, &server) ||
                                             server < 0 || server >= options.faults.servers))) {
      return absl::InvalidArgumentError(
          absl::StrCat("--slow_disk=", text, ": expected 'server', or 'server.0' to 'server.",
                       options.faults.servers - 1, "' first, as in server:20:100ms"));
    }
    if (const auto disk = ParseSlowDisk(words.second); !disk.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--slow_disk=", text, ": ", disk.status().message()));
    }
    options.run.launch.slow_disks[server] = std::string(words.second);
  }
  return absl::OkStatus();
}

// Puts each server's files on a separate disk, so that losing one disk does not end the job.
absl::Status PlanLossOfDisks(RunPlan& run) {
  if (run.hosts.servers.size() < 2) {
    return absl::InvalidArgumentError(
        "--lose_disk: this job has one server, so no other server has copies of its files; set "
        "--servers=2");
  }
  if (run.job.durability().copies() == 0) {
    return absl::InvalidArgumentError(
        "--lose_disk: this job keeps no copies (durability.copies is 0), so losing one server's "
        "disk loses the job; --set=durability.copies=1 keeps copies, and with "
        "--set=durability.level=LOG no acknowledged push is lost");
  }
  run.launch.disks_apart = true;
  return absl::OkStatus();
}

absl::StatusOr<DrillOptions> PlanDrill(const FlagValues& flags,
                                       const std::string& program_directory) {
  absl::StatusOr<RunPlan> run = PlanRun(flags, program_directory);
  if (!run.ok()) return run.status();
  DrillOptions options;
  options.run = *std::move(run);
  // Restarts killed parts immediately and without limit.
  options.run.restarts.most = std::numeric_limits<int>::max();
  options.run.restarts.longest_delay = options.run.restarts.first_delay;

  options.faults.servers = static_cast<int>(options.run.hosts.servers.size());
  options.faults.workers = static_cast<int>(options.run.hosts.workers.size());
  // Workers have equal stage counts, because drills do not use a hosts file.
  options.faults.stages = static_cast<int>(options.run.hosts.workers.front().stages.size());
  const absl::StatusOr<int64_t> seconds = flags.Integer("seconds", 60, 1, 86400);
  if (!seconds.ok()) return seconds.status();
  options.faults.length = absl::Seconds(*seconds);
  const absl::StatusOr<int64_t> seed =
      flags.Integer("seed", 1, 0, std::numeric_limits<int64_t>::max());
  if (!seed.ok()) return seed.status();
  options.faults.seed = static_cast<uint64_t>(*seed);
  for (const Fault::Kind kind : {Fault::Kind::kKill, Fault::Kind::kLoseDisk, Fault::Kind::kFreeze,
                                 Fault::Kind::kCut, Fault::Kind::kReset, Fault::Kind::kCrowd}) {
    for (const std::string& text : flags.All(FindFlag(kind))) {
      const absl::StatusOr<FaultRule> rule = ParseFaultRule(
          kind, text, options.faults.servers, options.faults.workers, options.faults.stages);
      if (!rule.ok()) return rule.status();
      options.faults.rules.push_back(*rule);
    }
  }
  if (const absl::Status disks = PlanSlowDisks(flags, options); !disks.ok()) return disks;
  if (options.faults.rules.empty() && options.run.launch.slow_disks.empty()) {
    return absl::InvalidArgumentError(
        "a drill needs a fault, for example --kill=server:every=5s or --freeze=worker:every=8s");
  }
  // Progress lines several times a second, more than people need, show stalls precisely.
  options.run.launch.worker_flags.push_back("--progress_seconds=0.2");
  if (BreaksNetwork(options.faults.rules)) {
    // Shared memory would bypass the broken network.
    options.run.launch.set.push_back("wire.shared_memory=false");
    options.run.job.mutable_wire()->set_shared_memory(false);
  }
  const auto hits_servers = [&](Fault::Kind kind) {
    return std::any_of(
        options.faults.rules.begin(), options.faults.rules.end(),
        [kind](const FaultRule& rule) { return rule.kind == kind && rule.is_server; });
  };
  if (hits_servers(Fault::Kind::kLoseDisk)) {
    if (const absl::Status kept = PlanLossOfDisks(options.run); !kept.ok()) return kept;
  }
  if (hits_servers(Fault::Kind::kKill) &&
      options.run.job.durability().level() == DurabilitySpec::NONE) {
    return absl::InvalidArgumentError(
        "--kill=server: this job's durability.level is NONE, so its servers cannot recover");
  }
  return options;
}

std::string DrillText(const DrillFigures& figures, absl::Duration began,
                      const std::optional<Report>& report, int exit_code) {
  std::string text = absl::StrCat("\nkilled: ", Count(figures.server_kills, "server"), ", ",
                                  Count(figures.worker_kills, "worker"),
                                  "; frozen: ", Count(figures.server_freezes, "server"), ", ",
                                  Count(figures.worker_freezes, "worker"), "\n");
  if (!figures.stage_kills.empty()) {
    const auto of_stage = [](std::string* out, const std::pair<const int, int>& kills) {
      absl::StrAppend(out, kills.second, " of stage ", kills.first);
    };
    absl::StrAppend(&text, "killed processes of workers: ",
                    absl::StrJoin(figures.stage_kills, ", ", of_stage), "\n");
  }
  if (figures.disks_lost + figures.disks_spared > 0) {
    absl::StrAppend(&text, "disks lost: ", figures.disks_lost);
    if (figures.disks_spared > 0) {
      absl::StrAppend(&text, ", skipped because copies were incomplete: ", figures.disks_spared);
    }
    absl::StrAppend(&text, "\n");
  }
  std::optional<absl::Duration> slowest;
  for (const RecoveryWatch::Recovery& recovery : figures.recoveries) {
    absl::StrAppend(&text, "  server ", recovery.server, " died after ",
                    Seconds(recovery.died_at - began), ": listens again after ",
                    Seconds(recovery.listens), ", first push applied after ",
                    Seconds(recovery.applies), "\n");
    if (recovery.applies.has_value()) {
      slowest = std::max(slowest.value_or(absl::ZeroDuration()), *recovery.applies);
    }
  }
  if (slowest.has_value()) {
    absl::StrAppend(
        &text, "slowest recovery, from death to the first applied push: ", Seconds(slowest), "\n");
  }
  if (report.has_value()) {
    const Report::RolledBack& lost = report->rolled_back();
    absl::StrAppend(&text, "rolled back: ", WithThousands(lost.blocks()), " blocks of ",
                    Count(lost.pushes(), "step"), "\n");
  }
  if (report.has_value() && report->has_result()) {
    const Report::Result& result = report->result();
    absl::StrAppend(&text, "final ", ResultText(result.metrics(), result.loss()), "\n");
  }
  for (const auto& [kind, fault] : figures.faults) {
    absl::StrAppend(&text, "--", kind, ": ", Count(fault.times, "time"),
                    ", longest stall of other workers: ",
                    fault.longest_stall.has_value() ? Seconds(fault.longest_stall) : "none", "\n");
  }
  return text + VerdictText(figures, report, exit_code);
}

int DrillCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  // Created first, so that the threads of gRPC inherit the blocked signals.
  const Interrupt interrupt;
  absl::StatusOr<DrillOptions> options = PlanDrill(flags, OwnDirectory());
  if (!options.ok()) {
    error << "psctl: " << options.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(options.status()));
  }
  const SteadyClock clock;
  const absl::Duration began = clock.Now();
  const absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates = OpenCertificates(flags);
  if (!certificates.ok()) {
    error << "psctl: " << certificates.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(certificates.status()));
  }
  const auto connect = [&](std::vector<std::string> addresses) {
    return ConnectToCluster(std::move(addresses), *certificates);
  };
  const bool has_log = options->run.job.durability().level() == DurabilitySpec::LOG;
  Drill drill(options->faults, has_log, connect, out, clock);
  out << "drill: seed " << options->faults.seed << ", faults for "
      << absl::FormatDuration(options->faults.length) << std::endl;
  if (BreaksNetwork(options->faults.rules)) {
    out << "drill: workers reach the servers through relays, without shared memory "
           "(wire.shared_memory=false)"
        << std::endl;
  }
  for (const auto& [server, disk] : options->run.launch.slow_disks) {
    out << "drill: the disk of server " << server << " is slow: " << disk << std::endl;
  }
  ClusterRun::Options run(std::move(options->run));
  run.view = ProgressView::OfTerminal();
  run.faults = &drill;
  std::optional<Report> report;
  const int code = RunInDirectory(std::move(run), out, error, clock, interrupt.fd(),
                                  [&report](const Report& last) { report = last; });
  out << DrillText(drill.figures(), began, report, code) << std::flush;
  return code;
}

}  // namespace torchps

#include "tools/drill/drill_command.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/process/exit_codes.h"
#include "tools/base/find_program.h"
#include "tools/base/format.h"
#include "tools/base/interrupt.h"
#include "tools/report/phrases.h"
#include "tools/run/run_command.h"

namespace torchps {
namespace {

// Does what the schedule says, and notes what comes of it.
class Drill final : public FaultPlan {
 public:
  Drill(const FaultSchedule::Options& options, RecoveryWatch::Connect connect, std::ostream& out,
        const Clock& clock)
      : schedule_(options), out_(out), watch_(std::move(connect), clock) {}

  absl::Duration NextAt() const override { return schedule_.NextAt(); }
  std::vector<Fault> Take(absl::Duration now) override { return schedule_.Take(now); }

  void OnFault(const Fault& fault, absl::Duration now) override {
    const bool server = fault.part.is_server;
    switch (fault.kind) {
      case Fault::Kind::kKill:
        ++(server ? figures_.server_kills : figures_.worker_kills);
        killed_at_[fault.part] = now;
        return;  // its death will be told
      case Fault::Kind::kFreeze:
        ++(server ? figures_.server_freezes : figures_.worker_freezes);
        out_ << fault.part.text() << " is frozen" << std::endl;
        return;
      case Fault::Kind::kThaw:
        out_ << fault.part.text() << " goes on" << std::endl;
        return;
    }
  }

  void OnDeath(const PartName& part, absl::Duration now) override {
    const auto killed = killed_at_.find(part);
    const absl::Duration died = killed == killed_at_.end() ? now : killed->second;
    killed_at_.erase(part);
    if (part.is_server) watch_.OnDeath(part.index, died);
  }

  void OnReturn(const PartName& part, const std::string& address, absl::Duration now) override {
    if (part.is_server) watch_.OnReturn(part.index, address, now);
  }

  DrillFigures figures() const {
    DrillFigures figures = figures_;
    figures.recoveries = watch_.recoveries();
    return figures;
  }

 private:
  FaultSchedule schedule_;
  std::ostream& out_;
  RecoveryWatch watch_;
  DrillFigures figures_;
  std::map<PartName, absl::Duration> killed_at_;
};

std::string Seconds(const absl::optional<absl::Duration>& duration) {
  return duration.has_value() ? absl::StrFormat("%.2f s", absl::ToDoubleSeconds(*duration))
                              : "never";
}

}  // namespace

std::vector<FlagSpec> DrillFlags() {
  std::vector<FlagSpec> flags;
  for (FlagSpec& flag : RunFlags()) {
    const bool elsewhere = flag.name == "hosts" || flag.name == "ssh" ||
                           flag.name == "remote_binary_dir" || flag.name == "restarts";
    if (!elsewhere) flags.push_back(std::move(flag));
  }
  flags.push_back({"kill", "PART:WHEN",
                   "Ends a part by SIGKILL: server:every=5s (one of them, about so often), "
                   "worker.2:at=30s (that one, once). Times count from the first progress.",
                   true});
  flags.push_back({"freeze", "PART:WHEN[:for=TIME]",
                   "Freezes a part by SIGSTOP for TIME, by default 1s: worker:every=8s:for=2s.",
                   true});
  flags.push_back({"seconds", "N", "No fault begins later than this. Default 60."});
  flags.push_back({"seed", "N", "Draws who is hit and when. Default 1."});
  return flags;
}

absl::StatusOr<DrillOptions> PlanDrill(const FlagValues& flags,
                                       const std::string& program_directory) {
  absl::StatusOr<ClusterRun::Options> run = PlanRun(flags, program_directory);
  if (!run.ok()) return run.status();
  DrillOptions options;
  options.run = *std::move(run);
  // Whatever is killed comes back at once, as often as it takes.
  options.run.restarts.most = std::numeric_limits<int>::max();
  options.run.restarts.longest_delay = options.run.restarts.first_delay;

  options.faults.servers = static_cast<int>(options.run.hosts.servers.size());
  options.faults.workers = static_cast<int>(options.run.hosts.workers.size());
  const absl::StatusOr<int64_t> seconds = flags.Integer("seconds", 60, 1, 86400);
  if (!seconds.ok()) return seconds.status();
  options.faults.length = absl::Seconds(*seconds);
  const absl::StatusOr<int64_t> seed =
      flags.Integer("seed", 1, 0, std::numeric_limits<int64_t>::max());
  if (!seed.ok()) return seed.status();
  options.faults.seed = static_cast<uint64_t>(*seed);
  const std::pair<const char*, Fault::Kind> kinds[] = {{"kill", Fault::Kind::kKill},
                                                       {"freeze", Fault::Kind::kFreeze}};
  for (const auto& kind : kinds) {
    for (const std::string& text : flags.All(kind.first)) {
      const absl::StatusOr<FaultRule> rule =
          ParseFaultRule(kind.second, text, options.faults.servers, options.faults.workers);
      if (!rule.ok()) return rule.status();
      options.faults.rules.push_back(*rule);
    }
  }
  if (options.faults.rules.empty()) {
    return absl::InvalidArgumentError(
        "a drill needs something to do: --kill=server:every=5s or --freeze=worker:every=8s");
  }
  const bool kills_servers = std::any_of(
      options.faults.rules.begin(), options.faults.rules.end(),
      [](const auto& rule) { return rule.kind == Fault::Kind::kKill && rule.is_server; });
  if (kills_servers && options.run.job.durability().level() == DurabilitySpec::NONE) {
    return absl::InvalidArgumentError(
        "--kill=server: this job's durability.level is NONE, so its servers cannot come back");
  }
  return options;
}

std::string DrillText(const DrillFigures& figures, absl::Duration began,
                      const absl::optional<Report>& report) {
  std::string text = absl::StrCat("\nkilled: ", Count(figures.server_kills, "server"), ", ",
                                  Count(figures.worker_kills, "worker"),
                                  "; frozen: ", Count(figures.server_freezes, "server"), ", ",
                                  Count(figures.worker_freezes, "worker"), "\n");
  absl::optional<absl::Duration> slowest;
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
        &text, "slowest return, from death to the first applied push: ", Seconds(slowest), "\n");
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
  return text;
}

int DrillCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  // First of all, so that every thread gRPC starts leaves these signals to us.
  const Interrupt interrupt;
  absl::StatusOr<DrillOptions> options = PlanDrill(flags, OwnDirectory());
  if (!options.ok()) {
    error << "psctl: " << options.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(options.status()));
  }
  options->run.view = ViewOfTerminal();
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
  Drill drill(options->faults, connect, out, clock);
  options->run.faults = &drill;
  out << "drill: seed " << options->faults.seed << ", faults for "
      << absl::FormatDuration(options->faults.length) << std::endl;
  absl::optional<Report> report;
  const int code = RunInDirectory(std::move(options->run), out, error, clock, interrupt.fd(),
                                  [&report](const Report& last) { report = last; });
  out << DrillText(drill.figures(), began, report) << std::flush;
  return code;
}

}  // namespace torchps

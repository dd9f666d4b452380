#include "torchps/tools/doctor/doctor_command.h"

#include <ctime>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/types.h"
#include "torchps/data/download_mnist.h"
#include "torchps/job/built_ins.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/doctor/gpu_checks.h"
#include "torchps/tools/run_folder/run_directory.h"
#include "torchps/tools/run_plan/built_in_jobs.h"
#include "torchps/tools/run_plan/hosts_file.h"

namespace torchps {

namespace {

using Level = Finding::Level;

constexpr char kSubject[] = "a lost disk";

// Describes the training lost if only checkpoints are kept.
std::string SinceTheCheckpoint(const DurabilitySpec& durability) {
  std::string often;
  if (durability.checkpoint_seconds() > 0) {
    often = absl::StrCat("every ", durability.checkpoint_seconds(), " s");
  }
  if (durability.checkpoint_steps() > 0) {
    absl::StrAppend(&often, often.empty() ? "" : " and ", "every ",
                    Count(durability.checkpoint_steps(), "step"), " of a slot");
  }
  return absl::StrCat("the training since the last checkpoint, which is taken ",
                      often.empty() ? "only by 'psctl checkpoint'" : often);
}

}  // namespace

Finding CheckDiskLoss(const DurabilitySpec& durability, int servers_apart) {
  if (durability.level() == DurabilitySpec::NONE) {
    return {Level::kOk, kSubject,
            "would cost the whole job, like any server crash: durability.level is NONE", ""};
  }
  if (durability.copies() > 0 && servers_apart >= 2) {
    const std::string cost = durability.level() == DurabilitySpec::LOG
                                 ? "no acknowledged push"
                                 : SinceTheCheckpoint(durability);
    return {Level::kOk, kSubject,
            absl::StrCat("would cost ", cost, ": another server keeps copies of its files"), ""};
  }
  if (durability.copies() > 0 && servers_apart == 1) {
    return {
        Level::kProblem, kSubject,
        "durability.copies is 1, but the job has one server, so no other server can keep copies",
        "name two servers or more, or set durability.copies to 0"};
  }
  if (durability.copies() > 0) {
    return {
        Level::kWarning, kSubject,
        "would cost the whole job, copies included: under 'psctl run' on one machine all servers "
        "keep their files in one directory",
        "copies help only if servers have separate disks (--hosts, or ps_server started by hand)"};
  }
  const std::string text = absl::StrCat(
      "would cost the whole job, ",
      durability.level() == DurabilitySpec::LOG ? "checkpoints and push log" : "checkpoints",
      " included: durability.copies is 0");
  if (servers_apart < 2) return {Level::kOk, kSubject, text, ""};
  return {Level::kWarning, kSubject, text,
          "set durability.copies to 1 to copy each server's files to another server; this doubles "
          "the writes"};
}

namespace {

constexpr char kOwnProgramAdvice[] =
    "correct the name, or set --worker_binary to your program if it defines the model or the data";

// "mlp on digits"
std::string DescribeWork(const JobSpec& job, bool names_data) {
  const std::string model = job.model().name().empty() ? "a model of your own" : job.model().name();
  return absl::StrCat(model, " on ", names_data ? job.data().source() : "data of your own");
}

// Reads the job file, or the built-in job of this name, and applies the overrides in the flags.
absl::StatusOr<JobSpec> ReadJob(const FlagValues& flags) {
  const std::string file = flags.Get("job");
  const std::string built_in = BuiltInJob(file);
  absl::StatusOr<JobSpec> job =
      built_in.empty() ? ParseJobFile(file) : ParseJobText(built_in, file);
  if (!job.ok()) return job.status();
  for (const std::string& assignment : flags.All("set")) {
    if (const absl::Status status = ApplyOverride(&*job, assignment); !status.ok()) return status;
  }
  if (flags.Has("data")) job->mutable_data()->set_path(flags.Get("data"));
  return job;
}

// Downloads the data. On failure, adds a finding and returns false.
bool Fetch(const FlagValues& flags, JobSpec& job, std::vector<Finding>& findings) {
  DownloadOptions options;
  options.mirrors = absl::StrSplit(flags.Get("mirrors"), ',', absl::SkipEmpty());
  absl::StatusOr<std::string> directory =
      DownloadForJob(job.data().source(), job.data().path(), std::move(options));
  if (directory.ok()) {
    job.mutable_data()->set_path(*std::move(directory));
    return true;
  }
  findings.push_back({Finding::Level::kProblem, "data", std::string(directory.status().message()),
                      "choose one of the fixes in this message"});
  return false;
}

// Returns the number of servers with separate directories that the flags name. Returns 0 for a
// 'psctl run' on this machine, which uses one directory.
int ServersApart(const FlagValues& flags) {
  if (flags.Has("servers")) {
    const std::vector<std::string> named = absl::StrSplit(flags.Get("servers"), ',');
    return static_cast<int>(named.size());
  }
  if (!flags.Has("hosts")) return 0;
  const absl::StatusOr<Hosts> hosts = ReadHostsFile(flags.Get("hosts"));
  // A bad file is reported as a separate finding.
  return hosts.ok() ? static_cast<int>(hosts->servers.size()) : 0;
}

void ExamineJob(const FlagValues& flags, std::vector<Finding>& findings, int64_t& workers) {
  absl::StatusOr<JobSpec> job = ReadJob(flags);
  const bool names_data = job.ok() && !job->data().source().empty();
  if (job.ok()) job = NormalizeJobSpec(*std::move(job));
  if (!job.ok()) {
    findings.push_back({Finding::Level::kProblem, "job", std::string(job.status().message()),
                        "docs/job.md describes every field"});
    return;
  }
  workers = job->workers();
  const bool own_worker = IsOwnWorker(flags.Get("worker_binary", "ps_worker"));
  const absl::Status model = own_worker ? CheckBuiltInModel(*job) : absl::OkStatus();
  const absl::Status data = own_worker ? CheckBuiltInData(*job) : absl::OkStatus();
  if (model.ok()) {
    findings.push_back(
        {Finding::Level::kOk, "job",
         absl::StrCat(job->name(), ": ", DescribeWork(*job, names_data || own_worker), ", ",
                      Count(workers, "worker"), ", durability ",
                      DurabilitySpec::Level_Name(job->durability().level())),
         ""});
  } else {
    findings.push_back(
        {Finding::Level::kProblem, "job", std::string(model.message()), kOwnProgramAdvice});
  }
  if (job->durability().level() == DurabilitySpec::LOG && !flags.Has("dir")) {
    findings.push_back({Finding::Level::kWarning, "durability",
                        "LOG needs a directory, but --dir is not set",
                        "'psctl run' makes one in runs/; servers started by hand need --dir=DIR"});
  }
  findings.push_back(CheckDiskLoss(job->durability(), ServersApart(flags)));
  if (!data.ok()) {
    findings.push_back(
        {Finding::Level::kProblem, "data", std::string(data.message()), kOwnProgramAdvice});
  } else if (!own_worker && !names_data) {
    findings.push_back({Finding::Level::kOk, "data",
                        "the job does not name any, so the worker program provides them", ""});
  } else if (!flags.Has("download") || Fetch(flags, *job, findings)) {
    for (Finding& finding : CheckData(*job)) findings.push_back(std::move(finding));
  }
}

void ExamineHosts(const std::string& file, std::vector<Finding>& findings) {
  const absl::StatusOr<Hosts> hosts = ReadHostsFile(file);
  if (!hosts.ok()) {
    findings.push_back({Finding::Level::kProblem, "hosts", std::string(hosts.status().message()),
                        "docs/operate.md shows one"});
    return;
  }
  for (const Place& place : hosts->servers) {
    // Without a port the server picks a free one, so this checks the ssh port to see that the host
    // is up.
    const bool bare_ipv6 = absl::StrContains(place.host, ':') && place.host.front() != '[';
    findings.push_back(
        CheckAddress(absl::StrCat(bare_ipv6 ? absl::StrCat("[", place.host, "]") : place.host, ":",
                                  place.port > 0 ? place.port : 22)));
  }
}

}  // namespace

std::vector<FlagSpec> DoctorFlags() {
  return {
      {"job", "FILE", "The job to run; checks its file and its data."},
      {"set", "PATH=VALUE", "Overrides one field of the job.", true, 0, "job"},
      {"data", "PATH", "The path of the training data, instead of the job's data.path.", false, 0,
       "job"},
      {"download", "", "Downloads MNIST if it is missing, as in 'psctl run'.", false, 0, "job"},
      {"mirrors", "URL,...",
       "With --download: web directories with the files, instead of the public ones.", false, 0,
       "download"},
      {"servers", "HOST:PORT,...", "The addresses of the servers; checks names, routes and ports."},
      {"hosts", "FILE", "A hosts file; checks its servers in the same way."},
      {"dir", "DIR", "The directory for the servers' state; checks space and permissions."},
      {"certs", "DIR", "The directory that 'psctl certs' made; checks the certificates."},
      {"resume", "", "Checks that the job in --dir can be resumed.", false, 0, "dir"},
      {"device", "DEVICE",
       "The device of workers on this machine. Default: cpu. For cuda or cuda:N, checks the driver "
       "and the GPUs that the worker program sees."},
      {"worker_binary", "PATH", "The worker program. Default: ps_worker in psctl's folder."},
  };
}

std::vector<Finding> Examine(const FlagValues& flags) {
  std::vector<Finding> findings;
  findings.push_back({Finding::Level::kOk, "version",
                      absl::StrCat("psctl speaks protocol ", kProtocolVersion,
                                   "; a server refuses workers with another protocol"),
                      ""});
  int64_t workers = 1;
  if (flags.Has("job")) ExamineJob(flags, findings, workers);
  if (flags.Has("hosts")) ExamineHosts(flags.Get("hosts"), findings);
  if (flags.Has("servers")) {
    for (const std::string& address :
         std::vector<std::string>(absl::StrSplit(flags.Get("servers"), ','))) {
      findings.push_back(CheckAddress(address));
    }
  }
  if (!flags.Has("hosts") && !flags.Has("servers")) findings.push_back(CheckFreePort());
  if (flags.Has("dir")) {
    const std::string dir = flags.Get("dir");
    findings.push_back(CheckDirectory(dir));
    const absl::Status usable = CheckRunDirectory(dir, flags.Has("resume"));
    if (!usable.ok()) {
      findings.push_back({Finding::Level::kProblem, "directory", std::string(usable.message()),
                          "choose one of the fixes in this message"});
    } else if (flags.Has("resume")) {
      findings.push_back({Finding::Level::kOk, "directory",
                          absl::StrCat("holds ", DescribeRunDirectory(dir)), ""});
    }
  }
  if (flags.Has("certs")) {
    for (Finding& finding : CheckCertificates(flags.Get("certs"), absl::Now())) {
      findings.push_back(std::move(finding));
    }
  }
  for (Finding& finding :
       CheckDevice(flags.Get("device", "cpu"),
                   FindProgram(flags, "worker_binary", OwnDirectory(), "ps_worker"))) {
    findings.push_back(std::move(finding));
  }
  findings.push_back(CheckOpenFiles(OpenFilesLimit(), workers));
  findings.push_back(CheckCongestionControl(CongestionControl()));
  findings.push_back(CheckSharedMemory());
  findings.push_back(CheckClock(std::time(nullptr)));
  return findings;
}

int DoctorCommand(const FlagValues& flags, std::ostream& out, std::ostream&) {
  const std::vector<Finding> findings = Examine(flags);
  out << FindingsText(findings) << std::flush;
  return static_cast<int>(AnyProblem(findings) ? ExitCode::kFailed : ExitCode::kOk);
}

}  // namespace torchps

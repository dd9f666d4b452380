#include "torchps/server/recovery.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/server/backup/backup_fetch.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Takes a checkpoint of the whole job. Checks the coordinator's job first, because another job may
// be using the address by now.
absl::Status TakeCheckpoint(const std::shared_ptr<grpc::Channel>& channel, uint64_t job_id,
                            absl::Time deadline) {
  const auto coordinator = Coordinator::NewStub(channel);
  JobStatus job;
  {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const absl::Status asked =
        FromGrpcStatus(coordinator->GetJobStatus(&context, JobStatusRequest(), &job));
    if (!asked.ok()) return asked;
  }
  if (job.job_id() != job_id) {
    return absl::FailedPreconditionError(
        job.job_id() == 0 ? std::string("it has no job yet")
                          : absl::StrCat("it runs another job: '", job.job().name(), "', number ",
                                         job.job_id(), "; expected number ", job_id));
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  CheckpointStatus taken;
  return FromGrpcStatus(coordinator->TakeCheckpoint(&context, TakeCheckpointRequest(), &taken));
}

}  // namespace

absl::Status AskForLastCheckpoint(
    ParameterServer* server, const std::string& coordinator,
    const std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>&
        connect,
    absl::Duration timeout) {
  std::optional<JobDirectory::Unkept> unkept = server->FindUnkept();
  if (!unkept.has_value()) return absl::OkStatus();
  const std::string address = coordinator.empty() ? unkept->coordinator : coordinator;
  absl::Status failure;
  std::string reason = "the address of server 0 is unknown";
  if (!address.empty()) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = connect(address);
    failure = channel.status();
    bool reached = false;
    if (channel.ok()) {
      failure = TakeCheckpoint(*channel, server->job()->job_id(), absl::Now() + timeout);
      reached = (*channel)->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    }
    if (failure.ok()) return failure;
    // The coordinator may be stopping too, and have taken a last checkpoint already.
    unkept = server->FindUnkept();
    if (!unkept.has_value()) return absl::OkStatus();
    reason =
        absl::StrCat("server 0 at ", address, ": ",
                     absl::IsDeadlineExceeded(failure)
                         ? absl::StrCat("took no checkpoint in ", absl::FormatDuration(timeout))
                     // Shortens gRPC's long message of names and addresses.
                     : channel.ok() && !reached && absl::IsUnavailable(failure)
                         ? std::string("cannot be reached")
                         : std::string(failure.message()));
  }
  return absl::UnavailableError(
      absl::StrCat(unkept->changes, unkept->changes == 1 ? " gradient" : " gradients",
                   " of this server's blocks since ",
                   unkept->checkpoint == 0 ? std::string("the job began")
                                           : absl::StrCat("checkpoint ", unkept->checkpoint),
                   " will be rolled back: ", reason));
}

namespace {

bool IsOfFirstServer(const std::string& name) {
  return absl::StartsWith(name, "checkpoint-") || absl::StartsWith(name, "log-0-of-") ||
         name == "coordinator.state";
}

}  // namespace

absl::Status FetchBackupOfFirstServer(FileSystem* files, const std::string& directory,
                                      BackupPeer* peer, const LogLine& log) {
  BackupFetch::Options options;
  options.files = files;
  options.peer = peer;
  options.directory = directory;
  options.with_coordinator = true;
  options.begin = [&log](const std::string& what, int64_t) {
    log(absl::StrCat("server 0 ", what));
  };
  BackupFetch fetch(std::move(options));
  const absl::StatusOr<std::vector<std::string>> names = files->List(directory);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  if (names.ok() && absl::c_any_of(*names, IsOfFirstServer) && !fetch.WasBrokenOff()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> fetched = fetch.Run();
  if (!fetched.ok()) return fetched.status();
  if (*fetched > 0) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(peer->name(),
                   " has no backup of server 0's files; name the server after it in the "
                   "workers' --servers list, or start without --copies_at to begin a new job"));
}

}  // namespace torchps

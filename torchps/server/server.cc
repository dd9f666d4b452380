#include "torchps/server/server.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "torchps/security/credentials.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/recovery.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/server_address.h"

namespace torchps {
namespace {

// Slot leases last seconds, so an expired lease is noticed early enough.
constexpr absl::Duration kHousekeepingInterval = absl::Milliseconds(100);

// Running calls are short, except parked calls, which are cancelled after this time.
constexpr absl::Duration kDrainTime = absl::Milliseconds(200);

// Much longer than a handshake needs on a busy machine or a slow link.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);

// Limit for a checkpoint on another server. Kubernetes allows 30 s between SIGTERM and SIGKILL.
constexpr absl::Duration kAskedCheckpointTimeout = absl::Seconds(20);

// gRPC's minimum for a receive window.
constexpr int64_t kMinWindowBytes = int64_t{64} << 10;

// Assumed number of workers before a job exists.
constexpr int kWorkersBeforeJob = 32;

// HTTP/2's maximum for one frame.
constexpr int kMaxHttp2FrameBytes = (1 << 24) - 1;

// Returns a channel with a separate connection to the server that keeps the backup. It reconnects
// quickly, because pushes wait while that server is away.
std::shared_ptr<grpc::Channel> BackupChannel(
    const std::string& address, const std::shared_ptr<CertificateFiles>& certificates) {
  grpc::ChannelArguments arguments;
  FindAgainSoon(&arguments);
  arguments.SetMaxReceiveMessageSize(kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, ChannelCredentialsFor(certificates), arguments);
}

// Returns a channel for control calls to another server.
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const std::shared_ptr<CertificateFiles>& certificates) {
  grpc::ChannelArguments arguments;
  FindAgainSoon(&arguments);
  return grpc::CreateCustomChannel(address, ChannelCredentialsFor(certificates), arguments);
}

absl::Status CheckAddresses(const Server::Options& options) {
  absl::Status valid;
  if (!options.advertise.empty()) valid = CheckServerAddress(options.advertise);
  if (!valid.ok()) return absl::InvalidArgumentError(absl::StrCat("advertise: ", valid.message()));
  if (!options.coordinator.empty()) valid = AddressSource::Parse(options.coordinator).status();
  if (valid.ok()) return valid;
  return absl::InvalidArgumentError(absl::StrCat("coordinator: ", valid.message()));
}

// Returns an error if this server cannot write to the directory. Without this check at the start,
// the first checkpoint or logged step would fail.
absl::Status CheckDirectory(FileSystem& files, const std::string& directory) {
  const auto refused = [&directory](const absl::Status& why) {
    return absl::Status(why.code(),
                        absl::StrCat("cannot save to --dir=", directory, ": ", why.message(),
                                     "; name a directory that this server can create or write to"));
  };
  if (absl::Status made = files.CreateDirectories(directory); !made.ok()) return refused(made);
  const std::string path = TemporaryPath(absl::StrCat(directory, "/writable"));
  const absl::StatusOr<std::unique_ptr<WritableFile>> file = files.CreateFile(path);
  // Ignores a full disk, because it may be cleaned up later.
  if (absl::IsResourceExhausted(file.status())) return absl::OkStatus();
  if (!file.ok()) return refused(file.status());
  (*file)->Close().IgnoreError();
  files.RemoveFile(path).IgnoreError();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Options options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, "; expected at least 1"));
  }
  if (!(options.slow >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("slow is ", options.slow, "; expected at least 1"));
  }
  if (options.seed == 0) {
    return absl::InvalidArgumentError("seed is 0; expected the server incarnation");
  }
  if (!options.copies_at.empty() && options.dir.empty()) {
    return absl::InvalidArgumentError(
        "copies_at names the server with the backup of the directory, but there is no directory; "
        "set --dir");
  }
  if (absl::Status valid = CheckAddresses(options); !valid.ok()) return valid;
  auto server = absl::WrapUnique(new Server(std::move(options)));
  if (const Options& given = server->options_; !given.dir.empty() && !given.resume) {
    // Skipped for a resumed job: ResumeReader checks the directory.
    const absl::Status kept = CheckDirectory(*server->files(), given.dir);
    if (!kept.ok()) return kept;
  }
  if (!server->options_.copies_at.empty()) {
    const std::shared_ptr<BackupPeer> peer =
        server->ReachPeer(/*index=*/1, server->options_.copies_at);
    const absl::Status fetched = FetchBackupOfFirstServer(server->files(), server->options_.dir,
                                                          peer.get(), server->logger());
    if (!fetched.ok()) return fetched;
  }
  const absl::Status listening = server->Listen();
  if (!listening.ok()) return listening;
  return server;
}

std::shared_ptr<BackupPeer> Server::ReachPeer(int index, const std::string& address) const {
  const auto connect =
      [this](int at, const std::string& where) -> absl::StatusOr<std::shared_ptr<grpc::Channel>> {
    if (options_.peer_channel != nullptr) return options_.peer_channel(at, where);
    return BackupChannel(where, options_.certificates);
  };
  return std::make_shared<GrpcBackupPeer>(connect, index, address);
}

ParameterServer::Options Server::DataPlaneOptions() const {
  ParameterServer::Options data_plane;
  data_plane.server_incarnation = options_.seed;
  data_plane.receive_bytes = options_.receive_bytes;
  data_plane.send_bytes = options_.send_bytes;
  data_plane.slow = options_.slow;
  data_plane.dir = options_.dir;
  data_plane.log = logger();
  data_plane.wake = [this](absl::Duration delay) { housekeeping_->Hurry(delay); };
  data_plane.reach_peer = [this](int index, const std::string& address) {
    return ReachPeer(index, address);
  };
  data_plane.clock = options_.clock;
  data_plane.files = files();
  return data_plane;
}

Server::Server(Options options)
    : options_(std::move(options)),
      own_files_(options_.files == nullptr ? MakePosixFileSystem() : nullptr),
      admission_(logger(), [this](const grpc::ServerContext& context) { EndHandshake(context); }),
      parameter_server_(DataPlaneOptions()),
      parameter_service_(&parameter_server_, &admission_,
                         [this] {
                           if (options_.on_shutdown_request) options_.on_shutdown_request();
                         }),
      coordinator_service_(CoordinationOptions()) {}

CoordinatorService::Options Server::CoordinationOptions() {
  CoordinatorService::Options coordination;
  coordination.seed = options_.seed;
  coordination.clock = options_.clock;
  coordination.directory = options_.dir;
  coordination.model_directory = options_.model_dir;
  coordination.files = files();
  coordination.resume = options_.resume;
  coordination.from_copy = !options_.copies_at.empty();
  coordination.stored = [this](const std::string& file) { parameter_server_.CopyBeside(file); };
  coordination.admission = &admission_;
  coordination.connect = [this](int index, const std::string& address) {
    return options_.peer_channel != nullptr ? options_.peer_channel(index, address)
                                            : ConnectToPeer(index, address);
  };
  coordination.log = logger();
  return coordination;
}

LogLine Server::logger() const {
  if (options_.log != nullptr) return options_.log;
  return [](const std::string& line) { std::fprintf(stderr, "ps_server: %s\n", line.c_str()); };
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Server::ConnectToPeer(int index,
                                                                     const std::string& address) {
  // Server 0 runs the coordinator.
  bool within_process = index == 0;
#ifdef TORCHPS_TSAN
  // TSan does not understand gRPC's in-process transport.
  within_process = within_process && address.empty();
#endif
  if (within_process) return InProcessChannel();
  if (address.empty()) {
    return absl::FailedPreconditionError("no worker has reported its address");
  }
  return ChannelTo(address, options_.certificates);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Server::ConnectToCoordinator(
    const std::string& address) {
  if (options_.peer_channel != nullptr) return options_.peer_channel(0, address);
  return ChannelTo(address, options_.certificates);
}

void Server::MakeRegistration() {
  Registration::Options registration;
  registration.server_incarnation = options_.seed;
  if (door_ != nullptr) registration.listens = door_->reachable_at();
  registration.directory = options_.dir;
  registration.files = files();
  registration.log = logger();
  registration.wants_checkpoint = [this] {
    const HostedJob* const job = parameter_server_.job();
    return job != nullptr && job->wants_checkpoint();
  };
  registration.connect = [this](int own_index, const std::string& coordinator) {
    return own_index == 0 ? ConnectToPeer(0, coordinator) : ConnectToCoordinator(coordinator);
  };
  if (!options_.advertise.empty()) registration.advertise = options_.advertise;
  // Start() has checked the value.
  if (!options_.coordinator.empty()) {
    registration.coordinator = *AddressSource::Parse(options_.coordinator);
  }
  registration_ = std::make_unique<Registration>(std::move(registration));
}

Server::~Server() { Stop(); }

absl::StatusOr<std::unique_ptr<Listener>> Server::MakeDoor() const {
  Listener::Options door;
  door.listen = options_.listen;
  door.certificates = options_.certificates;
  door.insecure = options_.insecure;
  door.danger = "read and change the model";
  door.remedy =
      "Give it certificates with --certs=DIR ('psctl certs' makes them), listen on 127.0.0.1, or "
      "pass --insecure in a network that you trust";
  door.patience = kHandshakeTimeout;
  door.log = logger();
  door.clock = options_.clock;
  return Listener::Create(std::move(door));
}

void Server::EndHandshake(const grpc::ServerContext& context) {
  if (door_ != nullptr) door_->EndHandshake(context);
}

absl::Status Server::Listen() {
  grpc::ServerBuilder builder;
  if (!options_.listen.empty()) {
    absl::StatusOr<std::unique_ptr<Listener>> door = MakeDoor();
    if (!door.ok()) return door.status();
    door_ = *std::move(door);
    door_->Attach(&builder);
  }
  // Time limit for handshakes, also on connections that send nothing after the first bytes.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(kHandshakeTimeout)));
  // Permits the workers' keepalive pings; otherwise gRPC refuses them with "too many pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  // The receive windows of all workers share `unread_bytes`. While the server reads a frame, gRPC
  // gives it more window. Without bandwidth estimation, gRPC does not raise the size of HTTP/2
  // frames, so the maximum is set here.
  ShareReceiveWindow();
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, options_.sets_receive_window ? 1 : 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttp2FrameBytes);
  builder.SetMaxReceiveMessageSize(kMaxFrameBytes);
  builder.SetMaxSendMessageSize(kMaxFrameBytes);
  builder.RegisterService(parameter_service_.service());
  builder.RegisterService(coordinator_service_.service());
  poller_ = std::make_unique<Poller>(builder.AddCompletionQueue());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  parameter_service_.Listen(poller_.get());
  coordinator_service_.Listen(poller_.get());
  MakeRegistration();
  // Created before a job can exist, because the job uses it.
  housekeeping_ =
      std::make_unique<PeriodicTasks>(kHousekeepingInterval, [this] { RunPeriodicTasks(); });
  poller_->Start(options_.threads);
  if (door_ != nullptr) door_->Open();
  // Written last, so that the server accepts connections when others read the address.
  if (options_.address_file.empty() || door_ == nullptr) return absl::OkStatus();
  return WriteAddressFile(options_.address_file,
                          options_.advertise.empty() ? door_->reachable_at() : options_.advertise);
}

absl::Status Server::TakeLastCheckpoint(absl::Duration timeout) {
  const HostedJob* const job = parameter_server_.job();
  if (job == nullptr || job->server_index() == 0) {
    return coordinator_service_.TakeLastCheckpoint(timeout);
  }
  const auto connect = [this](const std::string& address) { return ConnectToCoordinator(address); };
  return AskForLastCheckpoint(&parameter_server_, registration_->coordinator(), connect,
                              std::min(timeout, kAskedCheckpointTimeout));
}

std::shared_ptr<grpc::Channel> Server::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxFrameBytes);
  arguments.SetMaxSendMessageSize(kMaxFrameBytes);
  return server_->InProcessChannel(arguments);
}

void Server::ShareReceiveWindow() const {
  if (!options_.sets_receive_window) return;
  const HostedJob* const job = parameter_server_.job();
  // More workers may join than the job asks for.
  const int workers =
      job == nullptr ? kWorkersBeforeJob : std::max(job->spec().workers(), job->live_slots());
  SetReceiveWindow(std::max(options_.unread_bytes / workers, kMinWindowBytes));
}

void Server::RunPeriodicTasks() {
  ShareReceiveWindow();
  parameter_server_.AnswerSlowHellos();
  if (HostedJob* const job = parameter_server_.job(); job != nullptr) {
    job->ExpireLeases();
    job->MakeDueUpdates();
  }
  parameter_service_.WatchCalls();
  coordinator_service_.Tick();
  if (const std::optional<ServerIdentity> told = parameter_server_.place())
    registration_->Learn(*told);
}

void Server::Stop() {
  if (stopped_.exchange(true) || server_ == nullptr) return;
  if (door_ != nullptr) door_->Close();
  if (registration_ != nullptr) registration_->Stop();
  coordinator_service_.Stop();
  parameter_server_.Stop();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kDrainTime));
  poller_->Stop();
  if (housekeeping_ != nullptr) housekeeping_->Stop();
}

}  // namespace torchps

#include "server/server.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/process/ask.h"
#include "common/process/loopback_sockets.h"
#include "rpc/next_event.h"
#include "security/credentials.h"
#include "server/rpc/receive_window.h"
#include "wire/frame_codec.h"

namespace torchps {
namespace {

// Leases are seconds long and this only bounds how late a death is noticed.
constexpr absl::Duration kLeaseCheckInterval = absl::Milliseconds(100);

// Who listens beyond loopback too finds out only later which of its connections are local.
constexpr int kLeaseChecksPerSocketCheck = 10;

// Running calls are short but for parked ones, which are cancelled when this is over.
constexpr absl::Duration kDrainTime = absl::Milliseconds(200);

// Far more than a handshake takes, on a busy machine and over a slow link.
constexpr int kHandshakeTimeoutMs = 10'000;

// gRPC's own least.
constexpr int64_t kMinWindowBytes = int64_t{64} << 10;

// So many share the windows until it is known how many there are.
constexpr int kWorkersBeforeJob = 32;

// The largest that HTTP/2 knows.
constexpr int kMaxHttp2FrameBytes = (1 << 24) - 1;

struct HostPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort parts;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &parts.port) || parts.port < 0 ||
      parts.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on '", address,
                                                   "'; expected HOST:PORT with a port from 0 to ",
                                                   "65535, as in 127.0.0.1:7000"));
  }
  parts.host = address.substr(0, colon);
  return parts;
}

bool IsLoopback(const std::string& host) {
  // An address is read as one: a *name* may begin with "127." and lead anywhere.
  in_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) {
    return (ntohl(address.s_addr) >> 24) == 127;
  }
  return host == "localhost" || host == "[::1]";
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
    return absl::InvalidArgumentError("seed is 0; expected the number of this life of the server");
  }
  auto server = absl::WrapUnique(new Server(std::move(options)));
  const absl::Status listening = server->Listen();
  if (!listening.ok()) return listening;
  return server;
}

ParameterServer::Options Server::DataPlaneOptions() const {
  ParameterServer::Options data_plane;
  data_plane.life = options_.seed;
  data_plane.receive_bytes = options_.receive_bytes;
  data_plane.send_bytes = options_.send_bytes;
  data_plane.slow = options_.slow;
  data_plane.dir = options_.dir;
  data_plane.say = say();
  data_plane.clock = options_.clock;
  data_plane.files = files();
  return data_plane;
}

Server::Server(Options options)
    : options_(std::move(options)),
      own_files_(options_.files == nullptr ? MakePosixFileSystem() : nullptr),
      admission_(say()),
      parameter_server_(DataPlaneOptions()),
      parameter_service_(&parameter_server_, &admission_,
                         [this] {
                           if (options_.on_shutdown_request) options_.on_shutdown_request();
                         }),
      coordinator_service_(CoordinationOptions()),
      places_(options_.threads, &steady_clock_) {}

CoordinatorService::Options Server::CoordinationOptions() {
  CoordinatorService::Options coordination;
  coordination.seed = options_.seed;
  coordination.clock = options_.clock;
  coordination.directory = options_.dir;
  coordination.files = files();
  coordination.resume = options_.resume;
  coordination.admission = &admission_;
  coordination.connect = [this](int index, const std::string& address) {
    return options_.peer_channel != nullptr ? options_.peer_channel(index, address)
                                            : ConnectToPeer(index, address);
  };
  coordination.say = say();
  return coordination;
}

std::function<void(const std::string& line)> Server::say() const {
  if (options_.say != nullptr) return options_.say;
  return [](const std::string& line) { std::fprintf(stderr, "ps_server: %s\n", line.c_str()); };
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Server::ConnectToPeer(int index,
                                                                     const std::string& address) {
  // The coordinator is a role of the first server.
  bool within_process = index == 0;
#ifdef TORCHPS_TSAN
  // Which cannot see how gRPC hands bytes over within a process.
  within_process = within_process && address.empty();
#endif
  if (within_process) return InProcessChannel();
  if (address.empty()) {
    return absl::FailedPreconditionError("no worker has told where it is");
  }
  return grpc::CreateChannel(address, ChannelCredentialsFor(options_.certificates));
}

Server::~Server() { Stop(); }

absl::Status Server::MakeDoor() {
  const absl::StatusOr<HostPort> parts = SplitAddress(options_.listen);
  if (!parts.ok()) return parts.status();
  const bool tls = options_.certificates != nullptr;
  const bool loopback = IsLoopback(parts->host);
  if (!tls && !options_.insecure && !loopback) {
    return absl::InvalidArgumentError(
        absl::StrCat("refusing to listen on ", options_.listen,
                     " in the clear: anybody who reaches it could read and change the model. ",
                     "Give it certificates with --certs=DIR ('psctl certs' makes them), listen on ",
                     "127.0.0.1, or type --insecure in a network you trust"));
  }
  FrontDoor::Options door;
  door.host = parts->host;
  door.port = parts->port;
  door.tls = tls;
  door.own_user_only = !tls && !options_.insecure;
  door.say = say();
  door.clock = options_.clock;
  door.admit = [this](FileDescriptor connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection.Release();
    acceptor_->HandleNewConnection(&parameters);
  };
  absl::StatusOr<std::unique_ptr<FrontDoor>> made = FrontDoor::Create(std::move(door));
  if (!made.ok()) return made.status();
  door_ = *std::move(made);
  port_ = door_->port();
  address_ = absl::StrCat(parts->host, ":", port_);
  return absl::OkStatus();
}

absl::Status Server::Listen() {
  grpc::ServerBuilder builder;
  if (!options_.listen.empty()) {
    if (absl::Status status = MakeDoor(); !status.ok()) return status;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        options_.certificates == nullptr ? grpc::InsecureServerCredentials()
                                         : TlsServerCredentials(options_.certificates, say()));
  }
  // A handshake that is begun and not ended, and a connection that speaks and then says nothing.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // What the workers' keepalive needs, or they are told "too many pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  // What workers may send before anybody reads is bounded for all of them together. A frame that is
  // being read gets a window of its own. Without the estimate HTTP/2 frames must be let grow.
  ShareReceiveWindow();
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, CanSetReceiveWindow() ? 1 : 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttp2FrameBytes);
  builder.SetMaxReceiveMessageSize(kMaxFrameBytes);
  builder.SetMaxSendMessageSize(kMaxFrameBytes);
  builder.RegisterService(parameter_service_.service());
  builder.RegisterService(coordinator_service_.service());
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  UseCubicOnLoopback(port_);

  calls_ = std::shared_ptr<const void>(this, [this](const void*) {
    MutexLock lock(&mutex_);
    calls_ended_ = true;
    state_changed_.SignalAll();
  });
  parameter_service_.Listen(queue_.get(), &turns_, &places_, calls_);
  coordinator_service_.Listen(queue_.get(), calls_);
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] { Poll(); });
  }
  threads_.emplace_back([this] { WatchLeases(); });
  if (door_ != nullptr) door_->Open();
  return absl::OkStatus();
}

std::shared_ptr<grpc::Channel> Server::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxFrameBytes);
  arguments.SetMaxSendMessageSize(kMaxFrameBytes);
  return server_->InProcessChannel(arguments);
}

void Server::Poll() {
  while (true) {
    CompletionTag* tag = nullptr;
    bool ok = false;
    {
      MutexLock lock(&polling_);
      do {
        if (tag != nullptr) tag->Proceed(ok);
        tag = AwaitTask(&ok);
        if (tag == nullptr) return;
      } while (!tag->is_long());
    }
    tag->Proceed(ok);
  }
}

CompletionTag* Server::AwaitTask(bool* ok) {
  while (true) {
    if (CompletionTag* const turn = turns_.Next(); turn != nullptr) {
      *ok = true;
      return turn;
    }
    if (places_.waits()) places_.PassOn(asked_);
    void* next = nullptr;
    const auto answer = AwaitEvent(&next, ok);
    if (answer == grpc::CompletionQueue::SHUTDOWN) return nullptr;
    // Without an event gRPC may leave behind the tag of something that was its own affair.
    const bool got_event = answer == grpc::CompletionQueue::GOT_EVENT;
    auto* const event = got_event ? static_cast<CompletionTag*>(next) : nullptr;
    turns_.Asked(event != nullptr && event->is_long());
    if (event != nullptr) return event;
  }
}

grpc::CompletionQueue::NextStatus Server::AwaitEvent(void** tag, bool* ok) {
  const Meanwhile meanwhile = places_.reads_long() ? Meanwhile::kNap : Meanwhile::kYield;
  const auto await = [&](absl::Duration ask_for, absl::Time deadline) {
    return NextEvent(queue_.get(), ask_for, deadline, tag, ok, meanwhile);
  };
  const absl::Time past = absl::UnixEpoch();
  asked_ = steady_clock_.Now();
  if (turns_.waits()) return await(absl::ZeroDuration(), past);
  grpc::CompletionQueue::NextStatus answer = await(kRoundTrip, past);
  if (answer != grpc::CompletionQueue::TIMEOUT) return answer;
  if (places_.BeginSleep()) {
    answer = await(absl::ZeroDuration(), absl::InfiniteFuture());
    places_.EndSleep();
  } else {
    answer = await(absl::ZeroDuration(), absl::Now() + ReadPlaces::kIdle - kRoundTrip);
    if (answer == grpc::CompletionQueue::TIMEOUT) places_.NothingCame();
  }
  return answer;
}

void Server::ShareReceiveWindow() const {
  const HostedJob* const job = parameter_server_.job();
  // More may join than the job waits for.
  const int workers =
      job == nullptr ? kWorkersBeforeJob : std::max(job->spec().workers(), job->live_slots());
  SetReceiveWindow(std::max(options_.unread_bytes / workers, kMinWindowBytes));
}

void Server::WatchLeases() {
  MutexLock lock(&mutex_);
  for (int check = 1; !stopping_; ++check) {
    state_changed_.WaitFor(&mutex_, kLeaseCheckInterval);
    if (stopping_) return;
    mutex_.Unlock();
    if (check % kLeaseChecksPerSocketCheck == 0) UseCubicOnLoopback(port_);
    ShareReceiveWindow();
    if (HostedJob* const job = parameter_server_.job(); job != nullptr) job->ExpireLeases();
    coordinator_service_.Tick();
    mutex_.Lock();
  }
}

void Server::Stop() {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    state_changed_.SignalAll();
  }
  if (server_ == nullptr) return;
  if (door_ != nullptr) door_->Close();
  coordinator_service_.Stop();
  parameter_server_.Stop();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kDrainTime));
  // A call that was cancelled still has its end to say, and gRPC aborts the process where an
  // operation begins on a queue that is shut down.
  calls_.reset();
  {
    MutexLock lock(&mutex_);
    while (!calls_ended_) state_changed_.Wait(&mutex_);
  }
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace torchps

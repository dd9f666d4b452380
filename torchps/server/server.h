#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/security/call_admission.h"
#include "torchps/security/certificate_files.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/coordinator/checkpoint_conductor.h"
#include "torchps/server/coordinator/coordinator_service.h"
#include "torchps/server/data_plane/parameter_service.h"
#include "torchps/server/job/parameter_server.h"
#include "torchps/server/periodic_tasks.h"
#include "torchps/server/registration.h"
#include "torchps/server/rpc/listener.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/server/rpc/receive_window.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Runs a parameter server inside the current process: listens, serves ParameterService and
// Coordinator on separate threads, and expires leases. Only server 0 of a job receives Coordinator
// calls.
//
// Thread-safe. One process may contain several servers.
class Server {
 public:
  struct Options {
    // HOST:PORT; port 0 picks a free port. Empty: does not listen, only InProcessChannel() works.
    std::string listen = "127.0.0.1:0";
    // Threads that poll the completion queue; each applies the frames that it receives. At least 1.
    int threads = 2;
    // Certificates of a server (torchps/security/credentials.h): TLS on both sides, and permissions
    // by certificate. Null: plain text, allowed only on loopback and for the user of this process.
    std::shared_ptr<CertificateFiles> certificates;
    // Allows any host and any user without TLS. Gradients and parameters are then sent in plain
    // text, and anyone who can connect may push.
    bool insecure = false;
    // Directory for checkpoints and the push log, used again after a restart. Empty: nothing is
    // saved.
    std::string dir;
    // On server 0, if `dir` is set: directory for model files. Empty: `dir`.
    std::string model_dir;
    // HOST:PORT at which other machines reach this server. Empty: the address that workers use, or
    // the listen address with this machine's name if it listens on all interfaces.
    std::string advertise;
    // The coordinator: HOST:PORT, or file:PATH of an address file. Empty: workers report it.
    std::string coordinator;
    // File to which this server writes its address for --servers=file:PATH. Empty: does not write.
    std::string address_file;
    // On server 0: continue the job in `dir` with new workers.
    bool resume = false;
    // On server 0: the server with the backup of `dir`. Start() fetches the backup if `dir` is
    // empty. Empty: does not fetch one.
    std::string copies_at;
    // Outlives the server. Null: the operating system's files.
    FileSystem* files = nullptr;
    // Connects server 0 to other servers to take checkpoints. Null: uses the addresses from
    // workers.
    CheckpointConductor::Connect peer_channel;
    // Receives sentences for the user, on any thread. May be called shortly after the server is
    // destroyed, for refused connections. Null: standard error.
    LogLine log;
    // Multiplies the time to apply a frame; at least 1. Simulates a server that cannot keep up.
    double slow = 1;
    // Upper bounds in bytes, for all workers together. `receive_bytes`: the capacity of the
    // PushBudget (torchps/server/parked/push_budget.h), which holds up to 1 5/8 times as much.
    // `unread_bytes`: data that workers send before the server asks for it
    // (torchps/server/rpc/receive_window.h). Each worker gets an equal part, at least 64 KiB.
    // `send_bytes`: copies of blocks being sent. Including gRPC and the allocator, a server stays
    // within 96 MiB plus the model, for blocks of 1 MiB and 32 workers.
    int64_t receive_bytes = int64_t{16} << 20;
    int64_t unread_bytes = int64_t{4} << 20;
    int64_t send_bytes = int64_t{24} << 20;
    // True if the server sets gRPC's window to each worker's part of `unread_bytes`. Otherwise the
    // window is 64 KiB, as in gRPC versions without this setting.
    bool sets_receive_window = CanSetReceiveWindow();
    // The server incarnation, and the source of job and incarnation numbers. Never 0, and different
    // for each start, so that workers detect a restart.
    uint64_t seed = 1;
    // Outlives the server.
    const Clock* clock = nullptr;
    // Called on a server thread after each Shutdown call of a peer. It must not destroy the server.
    std::function<void()> on_shutdown_request;
  };

  // Starts a server. ALREADY_EXISTS: the port is in use. INVALID_ARGUMENT: an address is not
  // HOST:PORT, a number is out of range, or the host is not loopback without `certificates` or
  // `insecure`. UNAVAILABLE: the host cannot be bound. Also fails as FetchBackupOfFirstServer() if
  // `copies_at` is set. Errors of FileSystem if the address file or `dir` cannot be written.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options);

  // Calls Stop().
  ~Server();

  // The listen address with the actual port; empty if the server does not listen.
  std::string address() const { return door_ == nullptr ? "" : door_->address(); }

  // Returns a channel that bypasses the network, with the same calls and threads.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Called before Stop() in a graceful stop. Server 0 takes a last checkpoint if the job uses
  // checkpoints, and waits at most `timeout`. Other servers ask server 0 for it, and wait at most
  // 20 s. OK if a checkpoint is not needed.
  absl::Status TakeLastCheckpoint(absl::Duration timeout);

  // Answers parked calls (UNAVAILABLE or CANCELLED), waits for running calls and joins the threads.
  // Idempotent.
  void Stop();

 private:
  explicit Server(Options options);

  FileSystem* files() const {
    return options_.files != nullptr ? options_.files : own_files_.get();
  }
  LogLine logger() const;
  // Returns a connection to the server `index` at `address`, which keeps a backup.
  std::shared_ptr<BackupPeer> ReachPeer(int index, const std::string& address) const;
  ParameterServer::Options DataPlaneOptions() const;
  CoordinatorService::Options CoordinationOptions();

  absl::Status Listen();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToPeer(int index,
                                                               const std::string& address);
  // Used by servers other than server 0.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToCoordinator(const std::string& address);
  // REQUIRES: the server listens, unless `listen` is empty.
  void MakeRegistration();
  // Binds the port, but does not accept connections yet.
  absl::StatusOr<std::unique_ptr<Listener>> MakeDoor() const;
  // Called when a call arrives, because the connection's handshake is then complete.
  void EndHandshake(const grpc::ServerContext& context);
  // Runs the periodic work: leases, rounds, the coordinator's clock and the receive window.
  void RunPeriodicTasks();
  // Divides `unread_bytes` by the job's number of workers.
  void ShareReceiveWindow() const;

  const Options options_;
  const std::unique_ptr<FileSystem> own_files_;
  CallAdmission admission_;
  // The job uses this object, so it outlives the job.
  std::unique_ptr<PeriodicTasks> housekeeping_;
  ParameterServer parameter_server_;
  ParameterServiceShell parameter_service_;
  CoordinatorService coordinator_service_;
  std::unique_ptr<Registration> registration_;

  // Null if the server does not listen.
  std::unique_ptr<Listener> door_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> stopped_{false};
};

}  // namespace torchps

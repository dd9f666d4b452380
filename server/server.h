#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "security/call_admission.h"
#include "security/certificate_files.h"
#include "server/backup/backup_peer.h"
#include "server/coordinator/checkpoint_conductor.h"
#include "server/coordinator/coordinator_service.h"
#include "server/data_plane/parameter_service.h"
#include "server/job/parameter_server.h"
#include "server/periodic_tasks.h"
#include "server/registration.h"
#include "server/rpc/listener.h"
#include "server/rpc/poller.h"
#include "server/rpc/receive_window.h"
#include "storage/file_system.h"

namespace torchps {

// A whole parameter server process without the process: listens, serves ParameterService and
// Coordinator (which only the first server of a job is asked for) on its own threads, and lets
// leases run out.
//
// Thread-safe. Several can live in one process.
class Server {
 public:
  struct Options {
    // HOST:PORT; port 0 takes a free one. Empty: no port, only InProcessChannel().
    std::string listen = "127.0.0.1:0";
    // Threads that poll the completion queue; a frame is applied on the thread that took it from
    // there. At least 1.
    int threads = 2;
    // Of a server (security/credentials.h): TLS with certificates on both sides, and what each
    // caller may do by its certificate. Null: no TLS; then only on a loopback, and only for the
    // user that this process runs as.
    std::shared_ptr<CertificateFiles> certificates;
    // Permits every host and every user without TLS. Gradients and parameters then travel in the
    // clear, and anyone who reaches the port may push.
    bool insecure = false;
    // Where checkpoints and the push log are kept, and found again by a later life of this server.
    // Empty: nowhere.
    std::string dir;
    // The first server: where the model files are kept, if `dir` is not empty. Empty: in `dir`.
    std::string model_dir;
    // HOST:PORT at which others reach this server; empty: where workers have found it, or where it
    // listens, with this machine's name where that is every interface.
    std::string advertise;
    // Where the coordinator is: HOST:PORT, or file:PATH of its address file; empty: workers tell.
    std::string coordinator;
    // Where this server writes the address at which others reach it, for --servers=file:PATH;
    // empty: nowhere.
    std::string address_file;
    // The first server: the job whose state is in `dir` goes on, with other workers than before.
    bool resume = false;
    // The first server: who has copies of what was in `dir`, which come back before it begins if
    // there is nothing of it in `dir`. Empty: nobody.
    std::string copies_at;
    // Outlives the server. Null: the operating system's.
    FileSystem* files = nullptr;
    // How the first server reaches the others, to take checkpoints; null: by the address that the
    // workers use.
    CheckpointConductor::Connect peer_channel;
    // Takes sentences for the user, on any thread, and of connections that are refused also shortly
    // after the server has gone; null: they go to standard error.
    std::function<void(const std::string& line)> log;
    // Applying a frame takes so many times as long as it does; at least 1. To see what a server
    // that cannot keep up does to its workers.
    double slow = 1;
    // What the server holds at most, for all workers together, of frames that are being received
    // or applied (and half as much again of pushes that have stalled, an eighth of pushes of
    // strangers), of what workers have sent ahead of that (server/rpc/receive_window.h; each an
    // equal part, but 64 KiB at least), and of copies of blocks that are being sent. With gRPC's
    // own and the allocator's share this keeps a server within 96 MiB beside its model, at blocks
    // of 1 MiB and 32 workers.
    int64_t receive_bytes = int64_t{16} << 20;
    int64_t unread_bytes = int64_t{4} << 20;
    int64_t send_bytes = int64_t{24} << 20;
    // Whether the server tells gRPC how large each worker's part of `unread_bytes` is. Without, it
    // is 64 KiB, as with every gRPC that cannot be told.
    bool sets_receive_window = CanSetReceiveWindow();
    // The name of this life of the server, and what the names of job and incarnations are drawn
    // from: never 0, and never that of another life, or workers take that one for this one.
    uint64_t seed = 1;
    // Outlives the server.
    const Clock* clock = nullptr;
    // Runs once, on a thread of the server, when a peer calls Shutdown. It must not destroy the
    // server itself.
    std::function<void()> on_shutdown_request;
  };

  // ALREADY_EXISTS: the port is taken. INVALID_ARGUMENT: not HOST:PORT, not loopback without
  // `certificates` or `insecure`, or a number out of its range. UNAVAILABLE: the host cannot be
  // bound. With `copies_at` also as FetchBackupOfFirstServer(). FileSystem's errors: the address
  // file cannot be written, or `dir` cannot be made or written to.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options);

  // Stops.
  ~Server();

  // Where it listens, with the port that it got; empty: nowhere.
  std::string address() const { return door_ == nullptr ? "" : door_->address(); }

  // A channel that leaves out the network: same calls, same threads.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Of a graceful stop, before Stop(): the first server takes one more checkpoint of a job that
  // keeps them, and waits for it at most `timeout`; another one asks the first for it, and waits
  // for 20 s at most. OK: there is none to take.
  absl::Status TakeLastCheckpoint(absl::Duration timeout);

  // Answers what is parked (with UNAVAILABLE or CANCELLED), waits for running calls, joins the
  // threads. Idempotent.
  void Stop();

 private:
  explicit Server(Options options);

  FileSystem* files() const {
    return options_.files != nullptr ? options_.files : own_files_.get();
  }
  std::function<void(const std::string& line)> logger() const;
  // How to reach the server that has copies, at that address.
  std::shared_ptr<BackupPeer> ReachPeer(int index, const std::string& address) const;
  ParameterServer::Options DataPlaneOptions() const;
  CoordinatorService::Options CoordinationOptions();

  absl::Status Listen();
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToPeer(int index,
                                                               const std::string& address);
  // From another server than the first.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectToCoordinator(const std::string& address);
  // REQUIRES: it listens, if it is to.
  void MakeRegistration();
  // Binds the port, before any connection is let in.
  absl::StatusOr<std::unique_ptr<Listener>> MakeDoor() const;
  // A call has come, so the handshake of its connection is over.
  void EndHandshake(const grpc::ServerContext& context);
  // What is done now and then: leases, rounds, the coordinator's clock, the receive window.
  void RunPeriodicTasks();
  // Divides `unread_bytes` among the workers that the job has.
  void ShareReceiveWindow() const;

  const Options options_;
  const std::unique_ptr<FileSystem> own_files_;
  CallAdmission admission_;
  // The job wakes it as long as there is one.
  std::unique_ptr<PeriodicTasks> housekeeping_;
  ParameterServer parameter_server_;
  ParameterServiceShell parameter_service_;
  CoordinatorService coordinator_service_;
  std::unique_ptr<Registration> registration_;

  // Null: it listens nowhere.
  std::unique_ptr<Listener> door_;
  std::unique_ptr<Poller> poller_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> stopped_{false};
};

}  // namespace torchps

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "grpcpp/support/byte_buffer.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/proto/replica.grpc.pb.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/security/call_admission.h"
#include "torchps/security/certificate_files.h"
#include "torchps/server/rpc/listener.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/server/rpc/unary_call.h"

namespace torchps {

// Serves the calls of a replica's other processes: the Replica service on a separate address, with
// the same connection filter and access rules as a server.
//
// Thread-safe. One thread handles calls; the handlers must not block.
class MemberListener {
 public:
  using MeetCall = UnaryCall<RendezvousRequest, RendezvousReply>::Pointer;

  struct Options {
    std::string listen;
    std::shared_ptr<CertificateFiles> certificates;
    bool insecure = false;
    std::function<void(const MeetCall& call)> on_meet;
    std::function<absl::Status(TensorMessage parcel)> on_parcel;
    std::function<void(const std::string& line)> log;
    const Clock* clock = nullptr;  // outlives the listener
  };

  // INVALID_ARGUMENT: `listen` is not HOST:PORT, or is not a loopback address and there are no
  // certificates. ALREADY_EXISTS: the port is in use. UNAVAILABLE: the host is not this machine.
  static absl::StatusOr<std::unique_ptr<MemberListener>> Start(Options options);
  ~MemberListener() { Stop(); }

  // HOST:PORT, with the actual port.
  const std::string& address() const { return door_->address(); }

  // Stops handling calls and closes connections. Idempotent, but only one thread may call it at a
  // time.
  void Stop();

 private:
  explicit MemberListener(Options options);

  absl::Status Listen();

  const Options options_;
  CallAdmission admission_;
  Replica::AsyncService service_;
  std::unique_ptr<Listener> door_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Poller> poller_;
};

// Collects the other processes of a replica (visitors) at the leader. Each waits here until the
// leader has joined the job and begins the meeting, which is one run of these processes together.
// If several processes of a stage arrive, the latest replaces the others. The nonce shows that a
// process calls again.
//
// Thread-safe, except for Gather() and Begin(), which one thread calls in turn. Borrows the clock
// and the latch. Calls answers without holding a lock.
class ReplicaRendezvous {
 public:
  // Called once, from any thread, with the meeting or the reason for the refusal.
  using Answer = std::function<void(const absl::StatusOr<RendezvousReply>&)>;

  struct Options {
    int stages = 1;
    // Maximum wait for the other processes.
    absl::Duration patience = absl::Seconds(60);
    // Returns a stage's name for messages.
    std::function<std::string(int stage)> name_of;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
  };

  explicit ReplicaRendezvous(Options options);

  // Registers a visitor that waits for an answer. Refuses the visitor with UNAVAILABLE if the
  // meeting began without it or after Close(), and with FAILED_PRECONDITION if it does not match
  // the leader.
  void Visit(const RendezvousRequest& visitor, Answer answer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until all stages arrived, and returns their requests, `own` first. CANCELLED: stopped.
  // UNAVAILABLE: some stages did not arrive in time.
  absl::StatusOr<std::vector<RendezvousRequest>> Gather(const RendezvousRequest& own)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers the gathered processes with the meeting, also if they call again later.
  void Begin(const RendezvousReply& meeting) ABSL_LOCKS_EXCLUDED(mutex_);

  // Refuses the waiting visitors with `why`, because the meeting failed.
  void Dismiss(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Refuses the waiting visitors with `why`, and all later visitors.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Visitor {
    RendezvousRequest request;
    Answer answer;
  };

  // Returns the mismatch between a visitor and the leader, or OK.
  absl::Status Check(const RendezvousRequest& visitor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the stages that have not arrived yet, for example "1 and 2".
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The leader's request, set by Gather(), and the visitors by stage.
  std::optional<RendezvousRequest> own_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Visitor> visitors_ ABSL_GUARDED_BY(mutex_);
  // The gathered processes by stage, and the meeting after Begin().
  std::map<int, uint64_t> nonces_ ABSL_GUARDED_BY(mutex_);
  std::optional<RendezvousReply> meeting_ ABSL_GUARDED_BY(mutex_);

  const StopLatch::Registration on_stop_;
};

}  // namespace torchps

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/program/pipeline/replica_rendezvous.h"
#include "torchps/program/pipeline/tensor_sender.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/security/certificate_files.h"
#include "torchps/worker/pipeline/exchange.h"
#include "torchps/worker/pipeline/mailbox.h"

namespace torchps {

// Exchanges parcels (TensorMessage) between the processes of a replica by gRPC
// (torchps/proto/replica.proto). Each process listens on an address and calls the other processes.
// All calls have deadlines and are made once: if a parcel is lost, the replica ends. The leader and
// each other process send each other three heartbeats (beats) per lease. If a process hangs or is
// disconnected, the other detects this when a beat has no answer after one lease.
//
// Thread-compatible, like Exchange. Uses three more threads: for calls of other processes, for the
// sender and for the beats. Borrows the clock and the latch.
class MemberExchange final : public Exchange {
 public:
  struct Options {
    int stage = 0;
    int stages = 1;
    // HOST:PORT to listen on.
    std::string listen = "127.0.0.1:0";
    // The worker's certificates. Null: no TLS. The process then listens only on loopback and
    // accepts only processes of this user and of root.
    std::shared_ptr<CertificateFiles> certificates = nullptr;
    // Without certificates: allows listening on any address, and accepts any client.
    bool insecure = false;
    // The deadline of a parcel. A process that does not answer for this long is considered dead.
    absl::Duration lease = absl::Seconds(10);
    // Maximum memory of received parcels that this process has not used yet (Mailbox).
    int64_t mailbox_bytes = int64_t{2} * kMaxParcelBytes;
    // Maximum wait for the other processes to connect.
    absl::Duration patience = absl::Seconds(60);
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    const Clock* clock = nullptr;
    // Stopping the latch ends all waiting in this process. The exchange stops the latch when the
    // replica ends.
    StopLatch* stop = nullptr;
  };

  // Starts listening. Returns MemberListener's errors.
  static absl::StatusOr<std::unique_ptr<MemberExchange>> Listen(Options options);
  // Blocks until all sent parcels have arrived or failed, for at most one lease.
  ~MemberExchange() override;

  // The address this process listens on: HOST:PORT.
  const std::string& address() const { return listener_->address(); }
  // Sets the addresses of the processes, in stage order, and starts the beats. Call it once, before
  // the functions below.
  void Connect(const std::vector<std::string>& addresses);

  absl::StatusOr<std::vector<RendezvousRequest>> Gather(const RendezvousRequest& own) override;
  void Begin(RendezvousReply reply) override;
  absl::StatusOr<RendezvousReply> Meet(const RendezvousRequest& own) override;
  int stage() const override { return options_.stage; }
  int stages() const override { return options_.stages; }
  using Exchange::Send;
  void Send(int to, TensorMessage parcel, const torch::Tensor& tensor) override;
  absl::StatusOr<Delivery> Take(int from, const Name& name) override;
  void Fail(const absl::Status& status) override;
  absl::Status status() const override { return mailbox_.status(); }

  // For tests: behaves as if this process were killed. Stops sending and closes the port.
  void Break();

 private:
  explicit MemberExchange(Options options);
  ReplicaRendezvous::Options GatheringOptions() const;

  void OnMeet(const MemberListener::MeetCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnParcel(TensorMessage parcel) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts to send and accept parcels of `meeting`, which the leader drew.
  void Open(const RendezvousReply& meeting) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the replica and wakes all waiting calls. Returns false if it had ended before.
  bool End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the replica, because a parcel to stage `to` did not arrive.
  void OnLost(int to, TensorMessage::Kind kind, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SayFarewell(const std::string& reason);
  // Sends beats until the exchange ends.
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string GetName(int stage) const;

  const Options options_;
  Mailbox mailbox_;
  std::vector<std::string> addresses_;
  // Used by the leader only.
  ReplicaRendezvous gathering_;
  std::unique_ptr<MemberListener> listener_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Id of the meeting; nullopt before it begins.
  std::optional<uint64_t> meeting_ ABSL_GUARDED_BY(mutex_);
  // When the meeting began, and which processes have sent READY since then, by stage.
  absl::Duration began_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<TensorSender> post_;
  std::thread beats_;
};

}  // namespace torchps

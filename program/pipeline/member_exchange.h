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
#include "common/clock.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "program/pipeline/member_listener.h"
#include "program/pipeline/replica_rendezvous.h"
#include "program/pipeline/tensor_sender.h"
#include "proto/replica.pb.h"
#include "security/certificate_files.h"
#include "worker/pipeline/exchange.h"
#include "worker/pipeline/mailbox.h"

namespace torchps {

// The exchange of processes that reach each other by gRPC (proto/replica.proto). Each listens on an
// address of its own and calls the others on theirs. Every call has a deadline, and none is made
// twice: a parcel that did not arrive ends the replica. The leader and each other process send each
// other a beat three times in a lease, so that one that has died, hangs as a whole or is cut off is
// missed within one.
//
// Thread-compatible as Exchange. Three threads beside: gRPC's server queue, the post's, the beats'.
// Borrows clock and latch.
class MemberExchange final : public Exchange {
 public:
  struct Options {
    int stage = 0;
    int stages = 1;
    // HOST:PORT, where this process listens.
    std::string listen = "127.0.0.1:0";
    // A worker's; null: no TLS, and then only on a loopback, where this user's processes and root's
    // are let in.
    std::shared_ptr<CertificateFiles> certificates = nullptr;
    // Without TLS also elsewhere, and for everybody.
    bool insecure = false;
    // After which a process that does not answer counts as dead.
    absl::Duration lease = absl::Seconds(10);
    // How long to wait for the others to come.
    absl::Duration patience = absl::Seconds(60);
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    const Clock* clock = nullptr;
    // This process's: it ends all waiting here, and is stopped when the replica has ended.
    StopLatch* stop = nullptr;
  };

  // Listens. Errors are MemberListener's.
  static absl::StatusOr<std::unique_ptr<MemberExchange>> Listen(Options options);
  // Says farewell if it has failed, and waits until what was sent has arrived, for a lease at most.
  ~MemberExchange() override;

  // Where it listens: HOST:PORT.
  const std::string& address() const { return listener_->address(); }
  // Where the others do, in the order of their stages. To be called once, before all that follows.
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

  // For tests: as if this process were killed. It says nothing more, and its port is closed.
  void Break();

 private:
  explicit MemberExchange(Options options);
  ReplicaRendezvous::Options GatheringOptions() const;

  void OnMeet(const MemberListener::MeetCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnParcel(TensorMessage parcel) ABSL_LOCKS_EXCLUDED(mutex_);
  // Now it is known what this process takes part in.
  void Open(const RendezvousReply& meeting) ABSL_LOCKS_EXCLUDED(mutex_);
  // The replica has ended: nobody waits here any more, or for a server. False: it had before.
  bool End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // A sent parcel has not arrived.
  void OnLost(int to, TensorMessage::Kind kind, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SayFarewell(const std::string& reason);
  // Sends beats, until the exchange ends.
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string GetName(int stage) const;

  const Options options_;
  Mailbox mailbox_;
  std::vector<std::string> addresses_;
  // The leader's.
  ReplicaRendezvous gathering_;
  std::unique_ptr<MemberListener> listener_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // What this process takes part in, once that is known.
  std::optional<uint64_t> meeting_ ABSL_GUARDED_BY(mutex_);
  // When that was, and which of the others were ready since.
  absl::Duration began_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> ready_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<TensorSender> post_;
  std::thread beats_;
};

}  // namespace torchps

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "proto/replica.pb.h"
#include "torch/types.h"

namespace torchps {

// Connects one process of a replica to the other processes. Each process of a replica holds one
// stage of the model, in stage order. The first process leads. A meeting is one run of these
// processes together; the leader draws a number for it. A parcel is a TensorMessage between two
// processes.
//
// The processes end together. After a parcel is lost, or a process crashed or left, the calls that
// return a status return the same error.
//
// Thread-compatible: one computing thread makes the calls. Fail() and status() are thread-safe.
class Exchange {
 public:
  // Identifies an expected parcel, together with the sender.
  struct Name {
    TensorMessage::Kind kind = TensorMessage::KIND_UNSPECIFIED;
    int64_t order = 0;  // number of the leader's order, from 1
    int micro_batch = 0;
  };

  // Contents of a received parcel.
  struct Delivery {
    TensorMessage parcel;  // without the payload
    torch::Tensor tensor;  // on the CPU; undefined if the parcel has no tensor
  };

  virtual ~Exchange() = default;

  // Gather(), Begin() and Meet() connect the processes before they exchange parcels. In the leader,
  // Gather() blocks until all members have connected and returns their requests by stage; `own` is
  // the leader's request. Begin() then sends the reply to the members. The other processes call
  // Meet(), which sends `own` and waits for that reply.
  //
  // FAILED_PRECONDITION: a member belongs to another replica, or uses another protocol or other
  // data; the message names the member. UNAVAILABLE: the members or the leader did not answer
  // within WorkerOptions::patience. CANCELLED: as in Take().
  virtual absl::StatusOr<std::vector<RendezvousRequest>> Gather(const RendezvousRequest& own) = 0;
  virtual void Begin(RendezvousReply reply) = 0;
  virtual absl::StatusOr<RendezvousReply> Meet(const RendezvousRequest& own) = 0;

  virtual int stage() const = 0;
  virtual int stages() const = 0;
  bool leads() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == stages(); }

  // Sends `parcel` to another stage, with `tensor` if it is defined. Does not wait for arrival.
  // Fills in the parcel's sender and meeting. The tensor's elements must not change until the
  // replica's next step.
  virtual void Send(int to, TensorMessage parcel, const torch::Tensor& tensor) = 0;
  void Send(int to, TensorMessage parcel) { Send(to, std::move(parcel), torch::Tensor()); }

  // Blocks until stage `from` sends the parcel with this name. UNAVAILABLE: the replica ended; the
  // error names the first stage that ended, and the reason. INVALID_ARGUMENT: the parcel contains
  // an invalid tensor. CANCELLED: this process was stopped.
  virtual absl::StatusOr<Delivery> Take(int from, const Name& name) = 0;

  // Ends the replica because this process cannot continue. Notifies the other processes as far as
  // they are reachable. Does nothing if the replica has ended already. Thread-safe.
  virtual void Fail(const absl::Status& status) = 0;

  // Returns OK while the replica is running, otherwise the reason for the end. When the replica
  // ends, this process is stopped with the reason, because it may be waiting for a server, and the
  // server for the other processes' parts of a push. Thread-safe.
  virtual absl::Status status() const = 0;

  // Returns an empty parcel with this name.
  static TensorMessage Of(const Name& name) {
    TensorMessage parcel;
    parcel.set_kind(name.kind);
    parcel.set_order(name.order);
    parcel.set_micro_batch(name.micro_batch);
    return parcel;
  }
};

// Stores parcels from the other processes of a replica until this process needs them. Parcels may
// arrive in any order. Stored parcels can be taken even after the replica ended.
//
// Thread-safe. Borrows the latch. The number of stored parcels is limited, because a stage is ahead
// of the next stage by at most as many micro-batches as there are later stages
// (worker/stages/pipeline.h).
class Mailbox {
 public:
  explicit Mailbox(StopLatch* stop);

  // Accepts only parcels of the meeting with this number from now on.
  void Open(uint64_t meeting);

  // Returns ABORTED unless Open() was called with this number.
  absl::Status Check(uint64_t meeting) const;

  // ABORTED: the parcel's meeting is not open. ALREADY_EXISTS: a parcel with the same name is
  // stored.
  absl::Status Put(TensorMessage parcel);

  // Blocks until the parcel arrives. Errors as in Exchange::Take.
  absl::StatusOr<TensorMessage> Take(int from, const Exchange::Name& name);

  // Ends waiting calls with `status`. Returns false if an earlier call already failed the mailbox.
  bool Fail(const absl::Status& status);
  // OK unless Fail() was called.
  absl::Status status() const;

 private:
  // Kind, sender's stage, order, micro-batch.
  using Key = std::tuple<int, int, int64_t, int>;

  StopLatch* const stop_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t meeting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Key, TensorMessage> parcels_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps

#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/worker/pipeline/mailbox.h"

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
  using Name = ParcelName;

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

}  // namespace torchps

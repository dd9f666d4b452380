#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/replica.pb.h"
#include "torch/types.h"

namespace torchps {

// What one process of a replica says to the others, and hears from them. The processes of a replica
// each hold a stage of one model, in the order of the stages; the first one leads.
//
// All of them end together: once something has not arrived, or a process has died or has said
// farewell, every call here ends with the same error.
//
// Thread-compatible, but for Fail() and status(): one thread, which computes, makes all calls.
class Exchange {
 public:
  // Names what is waited for, beside the one who sends it.
  struct Name {
    TensorMessage::Kind kind = TensorMessage::KIND_UNSPECIFIED;
    int64_t order = 0;
    int micro_batch = 0;
  };

  // What has come.
  struct Delivery {
    TensorMessage parcel;  // without its payload
    torch::Tensor tensor;  // on the CPU; undefined where there is none
  };

  virtual ~Exchange() = default;

  // Before anything else is sent. The leader waits until all members have come, `own` among them,
  // and returns what they said, by stage; then Begin() tells them as what they take part. The
  // others Meet() the leader, and wait for that. FAILED_PRECONDITION: a member is of another
  // replica, protocol or data, in words that name it. UNAVAILABLE: they have not come, or the
  // leader has not answered, for as long as a worker waits for a server. CANCELLED as Take().
  virtual absl::StatusOr<std::vector<RendezvousRequest>> Gather(const RendezvousRequest& own) = 0;
  virtual void Begin(RendezvousReply reply) = 0;
  virtual absl::StatusOr<RendezvousReply> Meet(const RendezvousRequest& own) = 0;

  virtual int stage() const = 0;
  virtual int stages() const = 0;
  bool leads() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == stages(); }

  // Sends `parcel` to another stage, with `tensor` where it is defined, and does not wait until it
  // has arrived. Who and of which meeting is filled in here. The tensor's elements stay as they are
  // until the replica's next step.
  virtual void Send(int to, TensorMessage parcel, const torch::Tensor& tensor) = 0;
  void Send(int to, TensorMessage parcel) { Send(to, std::move(parcel), torch::Tensor()); }

  // Waits for what stage `from` sends by this name. UNAVAILABLE: the replica has ended; says which
  // stage was the first to, and why. INVALID_ARGUMENT: what has come is no tensor that can be.
  // CANCELLED: this process was stopped.
  virtual absl::StatusOr<Delivery> Take(int from, const Name& name) = 0;

  // This process can go on no more: the others hear so, as far as they can be reached. The first
  // error counts. Thread-safe.
  virtual void Fail(const absl::Status& status) = 0;

  // OK while the replica has not ended, else how it has. Once it has, this process is stopped, with
  // that message for a reason: it may be waiting for a server, which waits for other parts of a
  // push. Thread-safe.
  virtual absl::Status status() const = 0;

  // A parcel of this kind.
  static TensorMessage Of(const Name& name) {
    TensorMessage parcel;
    parcel.set_kind(name.kind);
    parcel.set_order(name.order);
    parcel.set_micro_batch(name.micro_batch);
    return parcel;
  }
};

}  // namespace torchps

#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "torch/types.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/replica.pb.h"

namespace torchps {

// Sends parcels (TensorMessage) to the other processes of a replica. Each parcel is one call with a
// deadline, without retries. A message is a short header and the tensor's memory, without a copy,
// in Protobuf's wire format. The tensor's memory is borrowed until the call ends.
//
// Thread-safe. Uses one thread to complete the calls.
class TensorSender {
 public:
  // Called if a parcel to stage `to` did not arrive. Runs on the sender's thread; must not block.
  using OnLost = std::function<void(int to, TensorMessage::Kind kind, const absl::Status& why)>;

  // `channels` are indexed by stage; null for this process's stage.
  TensorSender(const std::vector<std::shared_ptr<grpc::Channel>>& channels, OnLost on_lost);
  // Blocks until all calls have ended; their deadlines limit this time.
  ~TensorSender();
  TensorSender(const TensorSender&) = delete;
  TensorSender& operator=(const TensorSender&) = delete;

  // REQUIRES: `tensor` is undefined, or contiguous and on the CPU; parcel.tensor() describes it.
  void Send(int to, const TensorMessage& parcel, const torch::Tensor& tensor,
            absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until all calls have ended.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Cancels the calls in progress, except farewells, without calling `on_lost`. Later parcels,
  // except farewells, are dropped.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Call;

  void Run();

  const OnLost on_lost_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  grpc::CompletionQueue queue_;
  Mutex mutex_;
  CondVar changed_;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Returns the message's bytes; for tests.
grpc::ByteBuffer EncodeParcel(const TensorMessage& parcel, const torch::Tensor& tensor);

}  // namespace torchps

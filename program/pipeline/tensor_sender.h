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
#include "common/mutex.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/replica.pb.h"
#include "torch/types.h"

namespace torchps {

// Sends parcels to other processes of a replica, each as a call with a deadline, made once. The
// bytes of a tensor are borrowed until the call has ended: a message is a short header and a piece
// of the tensor's memory, byte for byte what Protobuf would write.
//
// Thread-safe. A thread of its own hears how calls end.
class TensorSender {
 public:
  // A parcel to stage `to` has not arrived. On the post's thread; must not block.
  using OnLost = std::function<void(int to, TensorMessage::Kind kind, const absl::Status& why)>;

  // `channels` by stage; null for the own one.
  TensorSender(const std::vector<std::shared_ptr<grpc::Channel>>& channels, OnLost on_lost);
  // Waits for the end of all calls, which their deadlines bound.
  ~TensorSender();
  TensorSender(const TensorSender&) = delete;
  TensorSender& operator=(const TensorSender&) = delete;

  // REQUIRES: `tensor` is contiguous and on the CPU, or undefined; parcel.tensor() describes it.
  void Send(int to, const TensorMessage& parcel, const torch::Tensor& tensor,
            absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for the end of all calls.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the calls that are under way, but for farewells. Nobody hears of those any more.
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

// The message's bytes; for tests.
grpc::ByteBuffer EncodeParcel(const TensorMessage& parcel, const torch::Tensor& tensor);

}  // namespace torchps

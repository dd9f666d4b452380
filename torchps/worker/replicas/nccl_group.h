#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "torchps/worker/device.h"
#include "torchps/worker/replicas/host_group.h"

namespace torchps {

// Declares the used part of NCCL's C interface (nccl.h), which is stable since NCCL 2.4. Does not
// use torch/csrc/cuda/nccl.h, because that file includes CUDA headers, which --config=cuda does not
// provide.
struct Nccl {
  using Communicator = void*;
  using Stream = void*;

  int (*init_all)(Communicator* communicators, int count, const int* devices) = nullptr;
  int (*destroy)(Communicator communicator) = nullptr;
  // Destroys the communicator, and ends operations in progress on the device.
  int (*abort)(Communicator communicator) = nullptr;
  const char* (*error_text)(int result) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int operation,
                    Communicator communicator, Stream stream) = nullptr;
  int (*reduce)(const void* from, void* to, size_t count, int type, int operation, int root,
                Communicator communicator, Stream stream) = nullptr;
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root,
                   Communicator communicator, Stream stream) = nullptr;
};

// Returns the functions of the NCCL library that this process has loaded, for example as part of a
// CUDA build of torch. UNAVAILABLE if NCCL is not loaded; the message names the first missing
// function.
absl::StatusOr<Nccl> FindNccl();

// Connects different GPUs with one NCCL communicator each. Operations run on the devices' default
// streams, which torch also uses by default. If only some replicas participate, for example in a
// short last pass, torch copies the tensors instead.
//
// After an NCCL failure or Abandon(), each call fails, for each replica. Otherwise, a device with a
// started operation would wait for the other devices forever.
class NcclGroup final : public LocalGroup {
 public:
  // INTERNAL with NCCL's message: NCCL does not start on these devices.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(const Nccl& nccl,
                                                           const DeviceList& devices);
  ~NcclGroup() override;

  absl::Status Sum(absl::Span<const torch::Tensor> tensors) override;
  absl::Status SumToAll(absl::Span<const torch::Tensor> tensors) override;
  absl::Status Copy(absl::Span<const torch::Tensor> tensors) override;
  void Abandon() override;

 private:
  NcclGroup(const Nccl& nccl, std::vector<Nccl::Communicator> communicators)
      : nccl_(nccl), replicas_(communicators.size()), communicators_(std::move(communicators)) {}

  // Calls `call` for each tensor, on the tensor's device, as one NCCL operation.
  template <typename Call>
  absl::Status Together(absl::Span<const torch::Tensor> tensors, const Call& call);

  const Nccl nccl_;
  const size_t replicas_;
  // By replica; empty after a failure.
  std::vector<Nccl::Communicator> communicators_;
  absl::Status error_;
  HostGroup copies_;
};

}  // namespace torchps

#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "worker/device.h"
#include "worker/replicas/host_group.h"
#include "worker/replicas/local_group.h"

namespace torchps {

// What is used of NCCL's C interface (nccl.h), whose functions and numbers have stayed the same
// since NCCL 2.4. Not torch/csrc/cuda/nccl.h: it includes CUDA's own headers, which --config=cuda
// does without.
struct Nccl {
  using Communicator = void*;
  using Stream = void*;

  int (*init_all)(Communicator* communicators, int count, const int* devices) = nullptr;
  int (*destroy)(Communicator communicator) = nullptr;
  // Also ends what is under way on the device.
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

// That of the NCCL that this process has loaded, as a CUDA build of torch does. UNAVAILABLE names
// the function that is missing: none is loaded.
absl::StatusOr<Nccl> FindNccl();

// A group of different GPUs, one communicator each. All calls go to the devices' default streams,
// on which torch computes where nobody says otherwise. Where not all replicas take part, as in a
// short last pass, torch copies instead.
//
// After a failure of NCCL's, or Abandon(), all calls for all replicas fail: a device on which an
// operation has begun would wait for the others for ever, and so would whoever waits for the
// device.
class NcclGroup final : public LocalGroup {
 public:
  // INTERNAL with NCCL's words: it does not start on these devices.
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

  // Calls `call` for each tensor, on its device, as one operation of NCCL's.
  template <typename Call>
  absl::Status Together(absl::Span<const torch::Tensor> tensors, const Call& call);

  const Nccl nccl_;
  const size_t replicas_;
  // By replica; none after a failure.
  std::vector<Nccl::Communicator> communicators_;
  absl::Status error_;
  HostGroup copies_;
};

}  // namespace torchps

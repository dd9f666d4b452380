#include "torchps/worker/replicas/nccl_group.h"

#include <exception>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "c10/core/DeviceGuard.h"
#include "torch/utils.h"
#include "torchps/common/process/found_functions.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Constants of nccl.h.
constexpr int kSuccess = 0;
constexpr int kSum = 0;
constexpr int kFloat32 = 7;
constexpr int kFloat64 = 8;

// The device's default stream.
constexpr Nccl::Stream kStream = nullptr;

absl::Status NcclError(const Nccl& nccl, int result) {
  if (result == kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("NCCL failed: ", nccl.error_text(result)));
}

// Arguments of an NCCL call for one tensor.
struct Piece {
  c10::Device device;
  void* data;
  size_t count;
  int type;
};

Piece GetPiece(const torch::Tensor& tensor) {
  TORCH_CHECK(tensor.scalar_type() == torch::kFloat32 || tensor.scalar_type() == torch::kFloat64,
              "devices exchange tensors of float32 and float64, not of ", tensor.scalar_type());
  return {tensor.device(), tensor.data_ptr(), static_cast<size_t>(tensor.numel()),
          tensor.scalar_type() == torch::kFloat32 ? kFloat32 : kFloat64};
}

}  // namespace

absl::StatusOr<Nccl> FindNccl() {
  Nccl nccl;
  FoundFunctions process = FoundFunctions::InProcess("this process");
  process.Find("ncclCommInitAll", &nccl.init_all);
  process.Find("ncclCommDestroy", &nccl.destroy);
  process.Find("ncclCommAbort", &nccl.abort);
  process.Find("ncclGetErrorString", &nccl.error_text);
  process.Find("ncclGroupStart", &nccl.group_start);
  process.Find("ncclGroupEnd", &nccl.group_end);
  process.Find("ncclAllReduce", &nccl.all_reduce);
  process.Find("ncclReduce", &nccl.reduce);
  process.Find("ncclBroadcast", &nccl.broadcast);
  if (!process.status().ok()) return process.status();
  return nccl;
}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(const Nccl& nccl,
                                                             const DeviceList& devices) {
  std::vector<int> indices;
  for (const torch::Device& device : devices) indices.push_back(device.index());
  std::vector<Nccl::Communicator> communicators(devices.size());
  const int count = static_cast<int>(devices.size());
  const int result = nccl.init_all(communicators.data(), count, indices.data());
  if (absl::Status status = NcclError(nccl, result); !status.ok()) return status;
  return absl::WrapUnique(new NcclGroup(nccl, std::move(communicators)));
}

NcclGroup::~NcclGroup() {
  for (const Nccl::Communicator communicator : communicators_) nccl_.destroy(communicator);
}

template <typename Call>
absl::Status NcclGroup::Together(absl::Span<const torch::Tensor> tensors, const Call& call) {
  if (!error_.ok()) return error_;
  std::vector<Piece> pieces;
  try {
    // Checks the tensors before the first device begins. If only some devices begin an operation,
    // they wait for the other devices forever.
    for (const torch::Tensor& tensor : tensors) pieces.push_back(GetPiece(tensor));
  } catch (const std::exception& error) {
    return TorchError("handing tensors to NCCL", error);
  }
  absl::Status status;
  int result = nccl_.group_start();
  try {
    for (size_t i = 0; i < pieces.size() && result == kSuccess; ++i) {
      const c10::DeviceGuard guard(pieces[i].device);
      result = call(pieces[i], communicators_[i]);
    }
  } catch (const std::exception& error) {
    status = TorchError("handing tensors to NCCL", error);
  }
  // Called even after a failure. Otherwise later operations would join the open group and never
  // start.
  const int ended = nccl_.group_end();
  status.Update(NcclError(nccl_, result != kSuccess ? result : ended));
  if (!status.ok()) {
    error_ = status;
    Abandon();
  }
  return status;
}

void NcclGroup::Abandon() {
  if (communicators_.empty()) return;
  error_.Update(absl::InternalError("NCCL was stopped because a device failed"));
  // In one group, because separate calls of one thread would wait for each other.
  nccl_.group_start();
  for (const Nccl::Communicator communicator : communicators_) nccl_.abort(communicator);
  nccl_.group_end();
  communicators_.clear();
}

absl::Status NcclGroup::Sum(absl::Span<const torch::Tensor> tensors) {
  if (tensors.size() != replicas_) return copies_.Sum(tensors);
  return Together(tensors, [this](const Piece& piece, Nccl::Communicator communicator) {
    return nccl_.reduce(piece.data, piece.data, piece.count, piece.type, kSum, /*root=*/0,
                        communicator, kStream);
  });
}

absl::Status NcclGroup::SumToAll(absl::Span<const torch::Tensor> tensors) {
  if (tensors.size() != replicas_) return copies_.SumToAll(tensors);
  return Together(tensors, [this](const Piece& piece, Nccl::Communicator communicator) {
    return nccl_.all_reduce(piece.data, piece.data, piece.count, piece.type, kSum, communicator,
                            kStream);
  });
}

absl::Status NcclGroup::Copy(absl::Span<const torch::Tensor> tensors) {
  if (tensors.size() != replicas_) return copies_.Copy(tensors);
  return Together(tensors, [this](const Piece& piece, Nccl::Communicator communicator) {
    return nccl_.broadcast(piece.data, piece.data, piece.count, piece.type, /*root=*/0,
                           communicator, kStream);
  });
}

}  // namespace torchps

#include "torchps/worker/kernels/gradient_kernels.h"

#include <algorithm>

#include "torchps/worker/gradient/sum_order.h"
#include "torchps/worker/kernels/cuda_launcher.h"

namespace torchps {
namespace {

int64_t Ceiling(int64_t number, int64_t divisor) { return (number + divisor - 1) / divisor; }

int64_t SumBlocks(int64_t numbers) { return Ceiling(SumOrder::Runs(numbers), kBlockWarps); }

// Limits for the thread blocks of TpsTopKCount: the maximum number of blocks, which keeps any GPU
// busy, and the number of elements for each block. At the end, each block merges up to
// kTopKLargestDigit counts, so it should first count more elements than that.
constexpr int64_t kMaxCountBlocks = 1024;
constexpr int64_t kCountElements = 4096;

// Number of counts of all digits in the scratch memory for TOP_K. The scratch memory also contains
// the cut, and two numbers for each chunk.
constexpr int64_t kTopKCounts = kTopKDigits * kTopKLargestDigit;

}  // namespace

absl::StatusOr<std::unique_ptr<GradientKernels>> GradientKernels::Create(int device) {
  absl::StatusOr<std::unique_ptr<KernelLauncher>> launcher = CudaLauncher::Create(device);
  if (!launcher.ok()) return launcher.status();
  return std::make_unique<GradientKernels>(*std::move(launcher));
}

int64_t GradientKernels::ScanScratchBytes(int64_t elements) {
  int64_t sums = 0;
  do {
    elements = SumOrder::Runs(elements);
    sums += elements;
  } while (elements > 1);
  return sums * static_cast<int64_t>(sizeof(double));
}

int64_t GradientKernels::TopKScratchBytes(int64_t elements) {
  return static_cast<int64_t>(sizeof(TopKCut)) +
         (kTopKCounts + 2 * TopKChunks(elements)) * static_cast<int64_t>(sizeof(uint32_t));
}

template <typename... Arguments>
absl::Status GradientKernels::Launch(Kernel kernel, int64_t blocks, Stream stream,
                                     Arguments... arguments) {
  void* const pointers[] = {&arguments...};
  return launcher_->Launch(kernel, blocks, pointers, stream);
}

absl::Status GradientKernels::Scan(const float* elements, int64_t count, double clip_norm,
                                   void* scratch, GradientVerdict* verdict, Stream stream) {
  auto* sums = static_cast<double*>(scratch);
  absl::Status status =
      Launch(Kernel::kSumElements, SumBlocks(count), stream, elements, count, sums);
  count = SumOrder::Runs(count);
  while (count > 1 && status.ok()) {
    const double* const numbers = sums;
    sums += count;
    status = Launch(Kernel::kSumSums, SumBlocks(count), stream, numbers, count, sums);
    count = SumOrder::Runs(count);
  }
  if (!status.ok()) return status;
  return Launch(Kernel::kJudge, 1, stream, static_cast<const double*>(sums), clip_norm, verdict);
}

absl::Status GradientKernels::Scale(float* elements, int64_t count, const GradientVerdict* verdict,
                                    Stream stream) {
  return Launch(Kernel::kScale, Ceiling(count, kChunk), stream, elements, count, verdict);
}

absl::Status GradientKernels::KeepBfloat16(const float* gradient, float* residual, int64_t count,
                                           const GradientVerdict* verdict, uint8_t* bytes,
                                           Stream stream) {
  return Launch(Kernel::kKeepBfloat16, Ceiling(count, kChunk), stream, gradient, residual, count,
                verdict, bytes);
}

absl::Status GradientKernels::KeepInt8(const float* gradient, float* residual, int64_t count,
                                       const GradientVerdict* verdict, uint8_t* bytes,
                                       Stream stream) {
  return Launch(Kernel::kKeepInt8, Ceiling(count, kChunk), stream, gradient, residual, count,
                verdict, bytes);
}

absl::Status GradientKernels::KeepTopK(const float* gradient, float* residual, int64_t count,
                                       int64_t k, const GradientVerdict* verdict, void* scratch,
                                       uint8_t* bytes, Stream stream) {
  const int64_t chunks = TopKChunks(count);
  auto* const cut = static_cast<TopKCut*>(scratch);
  const TopKCut* const found = cut;
  auto* const counts = reinterpret_cast<uint32_t*>(cut + 1);
  uint32_t* const above = counts + kTopKCounts;
  uint32_t* const equal = above + chunks;

  absl::Status status =
      Launch(Kernel::kTopKBegin, 1, stream, static_cast<uint32_t>(k), cut, counts);
  const int64_t count_blocks = std::min(Ceiling(count, kCountElements), kMaxCountBlocks);
  int low_bits = 31;
  for (int digit = 0; digit < kTopKDigits && status.ok(); ++digit) {
    const int digit_bits = digit == 0 ? 11 : 10;
    low_bits -= digit_bits;
    uint32_t* const own_counts = counts + digit * kTopKLargestDigit;
    const float* const added = digit == 0 ? gradient : nullptr;
    status = Launch(Kernel::kTopKCount, count_blocks, stream, added, residual, count, low_bits,
                    digit_bits, verdict, found, own_counts);
    if (!status.ok()) return status;
    status = Launch(Kernel::kTopKPick, 1, stream, low_bits, digit_bits, verdict, cut,
                    static_cast<const uint32_t*>(own_counts));
  }
  if (!status.ok()) return status;
  status = Launch(Kernel::kTopKCountChunks, chunks, stream, static_cast<const float*>(residual),
                  count, found, above, equal);
  if (!status.ok()) return status;
  status = Launch(Kernel::kTopKOffsets, 1, stream, chunks, above, equal);
  if (!status.ok()) return status;
  return Launch(Kernel::kTopKWrite, chunks, stream, residual, count, verdict, found,
                static_cast<const uint32_t*>(above), static_cast<const uint32_t*>(equal),
                reinterpret_cast<uint32_t*>(bytes));
}

absl::Status GradientKernels::TakeBackBfloat16(const uint8_t* bytes, int64_t count, float* residual,
                                               Stream stream) {
  return Launch(Kernel::kTakeBackBfloat16, Ceiling(count, kChunk), stream, bytes, count, residual);
}

absl::Status GradientKernels::TakeBackInt8(const uint8_t* bytes, int64_t count, float* residual,
                                           Stream stream) {
  return Launch(Kernel::kTakeBackInt8, Ceiling(count, kChunk), stream, bytes, count, residual);
}

absl::Status GradientKernels::TakeBackTopK(const uint8_t* bytes, int64_t k, float* residual,
                                           Stream stream) {
  return Launch(Kernel::kTakeBackTopK, Ceiling(k, kChunk), stream,
                reinterpret_cast<const uint32_t*>(bytes), k, residual);
}

}  // namespace torchps

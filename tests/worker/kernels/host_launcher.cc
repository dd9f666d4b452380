#include "tests/worker/kernels/host_launcher.h"

#include <pthread.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "torchps/worker/kernels/kernel_shapes.h"

// CUDA's compilers define these built-in names.
#define __global__
#define __device__
// Blocks of a launch run one after another, so they can share the same memory.
#define __shared__ static

namespace torchps {
namespace {

class Barrier {
 public:
  explicit Barrier(unsigned threads) { pthread_barrier_init(&barrier_, nullptr, threads); }
  ~Barrier() { pthread_barrier_destroy(&barrier_); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void Wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

struct Warp {
  Barrier barrier{kWarpThreads};
  uint64_t slots[kWarpThreads] = {};
};

struct Position {
  unsigned x = 0;
};

thread_local Position threadIdx;
thread_local Position blockIdx;
thread_local Warp* this_warp = nullptr;
thread_local Barrier* this_block = nullptr;
Position gridDim;

void __syncthreads() { this_block->Wait(); }

// Returns the value that lane `from` of this thread's warp passed. All lanes of the warp must call
// this together.
template <typename Value>
Value OfLane(Value own, unsigned from) {
  static_assert(sizeof(Value) <= sizeof(uint64_t), "a slot holds it");
  std::memcpy(&this_warp->slots[threadIdx.x % kWarpThreads], &own, sizeof(own));
  this_warp->barrier.Wait();
  if (from < kWarpThreads) std::memcpy(&own, &this_warp->slots[from], sizeof(own));
  this_warp->barrier.Wait();
  return own;
}

template <typename Value>
Value __shfl_down_sync(uint32_t, Value own, int lanes) {
  return OfLane(own, threadIdx.x % kWarpThreads + static_cast<unsigned>(lanes));
}

template <typename Value>
Value __shfl_xor_sync(uint32_t, Value own, int lanes) {
  return OfLane(own, threadIdx.x % kWarpThreads ^ static_cast<unsigned>(lanes));
}

uint32_t __ballot_sync(uint32_t, bool own) {
  this_warp->slots[threadIdx.x % kWarpThreads] = own ? 1 : 0;
  this_warp->barrier.Wait();
  uint32_t all = 0;
  for (unsigned lane = 0; lane < kWarpThreads; ++lane) {
    all |= static_cast<uint32_t>(this_warp->slots[lane]) << lane;
  }
  this_warp->barrier.Wait();
  return all;
}

int __popc(uint32_t bits) { return __builtin_popcount(bits); }

void atomicAdd(uint32_t* number, uint32_t more) {
  __atomic_fetch_add(number, more, __ATOMIC_RELAXED);
}

}  // namespace
}  // namespace torchps

#include "torchps/worker/kernels/encoding_kernels.h"
#include "torchps/worker/kernels/scan_kernels.h"
#include "torchps/worker/kernels/top_k_kernels.h"

namespace torchps {
namespace {

using Arguments = absl::Span<void* const>;
using Runnable = std::function<void(Arguments)>;

template <typename... Types, size_t... kIndices>
Runnable Unpacked(void (*kernel)(Types...), std::index_sequence<kIndices...>) {
  return [kernel](Arguments arguments) { kernel(*static_cast<Types*>(arguments[kIndices])...); };
}

template <typename... Types>
Runnable Unpacked(void (*kernel)(Types...)) {
  return Unpacked(kernel, std::index_sequence_for<Types...>());
}

// Launches take turns because a kernel's shared memory exists once in a process.
class HostLauncher final : public KernelLauncher {
 public:
  HostLauncher()
      : kernels_{Unpacked(&TpsSumElements),
                 Unpacked(&TpsSumSums),
                 Unpacked(&TpsJudge),
                 Unpacked(&TpsScale),
                 Unpacked(&TpsKeepBfloat16),
                 Unpacked(&TpsKeepInt8),
                 Unpacked(&TpsTopKBegin),
                 Unpacked(&TpsTopKCount),
                 Unpacked(&TpsTopKPick),
                 Unpacked(&TpsTopKCountChunks),
                 Unpacked(&TpsTopKOffsets),
                 Unpacked(&TpsTopKWrite),
                 Unpacked(&TpsTakeBackBfloat16),
                 Unpacked(&TpsTakeBackInt8),
                 Unpacked(&TpsTakeBackTopK)} {
    for (unsigned thread = 0; thread < kBlockThreads; ++thread) {
      threads_.emplace_back([this, thread] { Run(thread); });
    }
  }

  ~HostLauncher() override {
    kernel_ = nullptr;
    launch_.Wait();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Launch(Kernel kernel, int64_t blocks, Arguments arguments, Stream) override {
    static auto* const turn = new std::mutex;
    const std::lock_guard<std::mutex> lock(*turn);
    kernel_ = &kernels_[static_cast<size_t>(kernel)];
    arguments_ = arguments;
    gridDim.x = static_cast<unsigned>(blocks);
    launch_.Wait();
    launch_.Wait();
    return absl::OkStatus();
  }

 private:
  void Run(unsigned thread) {
    threadIdx.x = thread;
    this_warp = &warps_[thread / kWarpThreads];
    this_block = &block_;
    while (true) {
      launch_.Wait();
      if (kernel_ == nullptr) return;
      for (unsigned block = 0; block < gridDim.x; ++block) {
        blockIdx.x = block;
        (*kernel_)(arguments_);
        block_.Wait();
      }
      launch_.Wait();
    }
  }

  const std::vector<Runnable> kernels_;
  Barrier launch_{kBlockThreads + 1};
  Barrier block_{kBlockThreads};
  Warp warps_[kBlockWarps];
  // The caller of Launch() owns these members between launches. The kernel's threads own them
  // during a launch.
  const Runnable* kernel_ = nullptr;
  Arguments arguments_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<KernelLauncher> MakeHostLauncher() { return std::make_unique<HostLauncher>(); }

}  // namespace torchps

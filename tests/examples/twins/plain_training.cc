#include "tests/examples/twins/plain_training.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

template <typename T>
T OrExit(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

}  // namespace

JobSpec TwinJob(int argc, char** argv) {
  JobSpec job;
  job.set_seed(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1);
  job.mutable_optimizer()->set_learning_rate(1);  // a job requires a learning rate
  torch::manual_seed(job.seed());
  return OrExit(NormalizeJobSpec(job));
}

void ForEachBatch(int64_t samples, int epochs,
                  const std::function<void(const torch::Tensor& indices)>& step) {
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const torch::Tensor& indices : torch::randperm(samples, torch::kInt64).split(32)) {
      step(indices);
    }
  }
}

Batch BatchAt(const Dataset& dataset, const torch::Tensor& indices) {
  return OrExit(dataset.Get({indices.data_ptr<int64_t>(), static_cast<size_t>(indices.numel())}));
}

Batch AllOf(const Dataset& dataset) {
  return BatchAt(dataset, torch::arange(dataset.size(), torch::kInt64));
}

void PrintLoss(double loss) { std::printf("loss %.9g\n", loss); }

}  // namespace torchps

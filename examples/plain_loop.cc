#include "examples/plain_loop.h"

#include <cstdio>
#include <cstdlib>

#include "absl/types/span.h"
#include "torchps/common/sample_order.h"
#include "torchps/data/data_registry.h"

namespace examples {
namespace {

template <typename T>
T OrExit(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(result);
}

}  // namespace

torchps::DataSource OpenDigits(int argc, char** argv) {
  torchps::JobSpec job;
  job.set_seed(1);
  job.mutable_data()->set_source(argc > 1 ? "idx" : "digits");
  if (argc > 1) {
    job.mutable_data()->set_path(argv[1]);
  } else {
    job.mutable_data()->set_train_samples(6000);
    job.mutable_data()->set_test_samples(1000);
  }
  return OrExit(torchps::OpenData(job));
}

std::vector<torchps::Batch> Batches(const torchps::Dataset& dataset, int64_t batch_size,
                                    int epochs) {
  std::vector<torchps::Batch> batches;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const std::vector<int64_t> order = torchps::EpochOrder(/*seed=*/1, epoch, dataset.size());
    for (int64_t begin = 0; begin < dataset.size(); begin += batch_size) {
      batches.push_back(OrExit(dataset.Get(absl::MakeSpan(order).subspan(begin, batch_size))));
    }
  }
  return batches;
}

}  // namespace examples

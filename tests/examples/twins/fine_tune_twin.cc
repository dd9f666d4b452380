// Trains examples/fine_tune.cc without torchps for one epoch: the same frozen layers, from the file
// in the second argument, and a new head.
#include "tests/examples/twins/plain_training.h"
#include "torchps/data/data_registry.h"
#include "torchps/worker/state_file.h"

#define main ExampleMain
#include "examples/fine_tune.cc"  // NOLINT: its module is private to it
#undef main

int main(int argc, char** argv) {
  const torchps::JobSpec job = torchps::TwinJob(argc, argv);
  const torchps::DataSource digits = *torchps::OpenData(job);
  const Odd train(digits.train);
  const Odd test(digits.test);
  Net net;
  const absl::Status loaded =
      torchps::LoadState(net, argc > 2 ? argv[2] : "", torchps::Match::kCommon);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.message()).c_str());
    return 1;
  }
  net.train(true);
  torch::optim::SGD optimizer(net.head->parameters(), torch::optim::SGDOptions(0.01));
  const auto loss_of = [&net](const torchps::Batch& batch) {
    return torch::cross_entropy_loss(net.forward(batch.input), batch.target);
  };
  torchps::ForEachBatch(train.size(), 1, [&](const torch::Tensor& indices) {
    optimizer.zero_grad();
    loss_of(torchps::BatchAt(train, indices)).backward();
    optimizer.step();
  });
  const torch::NoGradGuard no_grad;
  torchps::PrintLoss(loss_of(torchps::AllOf(test)).item<double>());
}

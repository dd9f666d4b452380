// Trains examples/two_inputs.cc without torchps: the same module and rectangles, twenty epochs.
#include "tests/examples/twins/plain_training.h"

#define main ExampleMain
#include "examples/two_inputs.cc"  // NOLINT: its module is private to it
#undef main

int main(int argc, char** argv) {
  torchps::TwinJob(argc, argv);
  const std::shared_ptr<torchps::Dataset> train = Rectangles(4000);
  const std::shared_ptr<torchps::Dataset> test = Rectangles(500);
  Area net(32);
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.003));
  const auto loss_of = [&net](const torchps::Batch& batch) {
    return torch::mse_loss(net.forward(batch.input, batch.more_inputs[0]), batch.target);
  };
  torchps::ForEachBatch(train->size(), 20, [&](const torch::Tensor& indices) {
    optimizer.zero_grad();
    loss_of(torchps::BatchAt(*train, indices)).backward();
    optimizer.step();
  });
  torchps::PrintLoss(loss_of(torchps::AllOf(*test)).item<double>());
}

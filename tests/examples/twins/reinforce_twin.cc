// Trains examples/reinforce.cc without torchps: the same policy, five epochs of 640 walks.
#include "tests/examples/twins/plain_training.h"

#define main ExampleMain
#include "examples/reinforce.cc"  // NOLINT: its policy is private to it
#undef main

int main(int argc, char** argv) {
  torchps::TwinJob(argc, argv);
  Policy policy;
  torch::optim::Adam optimizer(policy.parameters(), torch::optim::AdamOptions(0.02));
  double usual = kMaxSteps;
  torchps::ForEachBatch(640, 5, [&](const torch::Tensor& indices) {
    torch::Tensor loss = torch::zeros({});
    const auto walks = static_cast<double>(indices.numel());
    for (int64_t i = 0; i < indices.numel(); ++i) {
      const Walk walk = TakeWalk(policy);
      loss = loss + walk.log_probability * ((walk.steps - usual) / walks);
      usual += 0.05 * (walk.steps - usual);
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  });
  double steps = 0;
  for (int i = 0; i < 100; ++i) steps += TakeWalk(policy).steps / 100.0;
  torchps::PrintLoss(steps);
}

// Trains examples/gan.cc without torchps: the same modules, two optimizers, five epochs.
#include "tests/examples/twins/plain_training.h"

#define main ExampleMain
#include "examples/gan.cc"  // NOLINT: its modules and losses are private to it
#undef main

int main(int argc, char** argv) {
  const torchps::JobSpec job = torchps::TwinJob(argc, argv);
  const torchps::DataSource digits = *torchps::OpenData(job);
  Gan gan;
  const auto options = torch::optim::AdamOptions(0.002).betas({0.5, 0.999});
  torch::optim::Adam critics(gan.critic->parameters(), options);
  torch::optim::Adam generators(gan.generator->parameters(), options);
  torchps::ForEachBatch(digits.train->size(), 5, [&](const torch::Tensor& indices) {
    const torch::Tensor real = torchps::BatchAt(*digits.train, indices).input.flatten(1);
    const torch::Tensor drawn = gan.Draw(real.size(0));
    critics.zero_grad();
    (Off(gan.critic->forward(real), 1) + Off(gan.critic->forward(drawn.detach()), 0)).backward();
    // The example computes both gradients before either network changes. So does this loop.
    generators.zero_grad();
    const torch::Tensor loss = Off(gan.critic->forward(drawn), 1);
    const auto gradients = torch::autograd::grad({loss}, gan.generator->parameters());
    size_t i = 0;
    // Copies the gradients, because some are views, which zero_grad() rejects.
    for (torch::Tensor& weight : gan.generator->parameters()) {
      weight.mutable_grad() = gradients[i++].clone();
    }
    critics.step();
    generators.step();
  });
  const torch::NoGradGuard no_grad;
  torchps::PrintLoss(Off(gan.critic->forward(gan.Draw(1000)), 1).item<double>());
}

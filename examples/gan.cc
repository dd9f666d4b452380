// Trains a GAN on handwritten digits in a custom training loop: two modules and two losses in one
// step.
//
//   examples/gan --local --set optimizer.kind=adam --set optimizer.adam.beta1=0.5
//                --set optimizer.learning_rate=0.002 --set training.epochs=5

#include <torch/torch.h>

#include "torchps/data/data_registry.h"
#include "torchps/session.h"

namespace nn = torch::nn;

constexpr int64_t kNoise = 32;

struct Gan : nn::Module {
  nn::Sequential generator{nn::Linear(kNoise, 128), nn::ReLU(), nn::Linear(128, 784)};
  nn::Sequential critic{nn::Linear(784, 128), nn::LeakyReLU(), nn::Linear(128, 1)};

  Gan() {
    register_module("generator", generator);
    register_module("critic", critic);
  }
  torch::Tensor Draw(int64_t images) { return generator->forward(torch::randn({images, kNoise})); }
};

// Returns the least-squares loss (Mao et al. 2017). The critic wants 1 for real images and 0 for
// drawn images. The generator wants 1 for drawn images.
torch::Tensor Off(const torch::Tensor& judged, double wanted) {
  return (judged - wanted).square().mean();
}

void Train(torchps::Session& session) {
  const torchps::DataSource digits = *torchps::OpenData(session.job());
  Gan gan;
  torchps::Session::Options options;
  options.samples = digits.train->size();
  options.data = digits.description;
  options.evaluate = [&] {
    const torch::Tensor drawn = gan.Draw(1000);
    const auto loss = Off(gan.critic->forward(drawn), 1).item<double>();
    // "ink" should approach 0, the mean pixel of real digits after normalization.
    return torchps::Evaluation{1000, loss, {{"ink", drawn.mean().item<double>()}}};
  };
  session.Join(gan, options);
  while (session.Next()) {
    const torch::Tensor real = digits.train->Get(session.samples())->input.flatten(1);
    const torch::Tensor drawn = gan.Draw(real.size(0));
    const torch::Tensor critics_loss =
        Off(gan.critic->forward(real), 1) + Off(gan.critic->forward(drawn.detach()), 0);
    critics_loss.backward();
    for (torch::Tensor& weight : gan.critic->parameters()) weight.set_requires_grad(false);
    Off(gan.critic->forward(drawn), 1).backward();  // gradients for the generator only
    for (torch::Tensor& weight : gan.critic->parameters()) weight.set_requires_grad(true);
    session.Push(critics_loss);
  }
}

int main(int argc, char** argv) { return torchps::SessionMain(argc, argv, Train); }

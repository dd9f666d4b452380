// Trains a small network to separate two spirals. The program uses torchps as an external
// repository.

#include <torch/torch.h>

#include "torchps/train.h"

struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    return last->forward(torch::tanh(middle->forward(torch::tanh(first->forward(x)))));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(2, 32))};
  torch::nn::Linear middle{register_module("middle", torch::nn::Linear(32, 32))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(32, 2))};
};

std::shared_ptr<torchps::Dataset> Spirals(int64_t points) {
  const torch::Tensor arm = torch::arange(points).remainder(2);
  const torch::Tensor turn = torch::rand({points}) * 6;
  const torch::Tensor angle = turn + arm * M_PI;
  const torch::Tensor at = torch::stack({torch::cos(angle), torch::sin(angle)}, 1);
  return std::make_shared<torchps::TensorDataset>(at * turn.unsqueeze(1) / 3, arm);
}

int main(int argc, char** argv) {
  return torchps::TrainMain(argc, argv, [](const torchps::JobSpec&) {
    return torchps::Task{std::make_shared<Net>(), torchps::CrossEntropy(),
                         torchps::DataSource{Spirals(4000), Spirals(500), "two spirals"}};
  });
}

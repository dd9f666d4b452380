// Trains a small convolutional network on handwritten digits. mnist_single_process.cc uses only
// libtorch, and mnist_torchps.cc uses parameter servers. Compare them with `diff`.

#include <torch/torch.h>

#include "torchps/train.h"

struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1->forward(conv1->forward(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2->forward(conv2->forward(x))), 2);
    return linear->forward(x.flatten(1));
  }

  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(1, 16, 5))};
  torch::nn::BatchNorm2d norm1{register_module("norm1", torch::nn::BatchNorm2d(16))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(16, 32, 5))};
  torch::nn::BatchNorm2d norm2{register_module("norm2", torch::nn::BatchNorm2d(32))};
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(512, 10))};
};

int main(int argc, char** argv) {
  return torchps::TrainMain(argc, argv, [](const torchps::JobSpec& job) {
    return torchps::Task{std::make_shared<Net>(), torchps::CrossEntropy(), torchps::OpenData(job)};
  });
}

// Trains a perceptron on handwritten digits in three stages that compute concurrently on parts of a
// batch. The stages use three devices of one process, or three processes.
//
//   examples/stages --local --device=cpu,cpu,cpu --set optimizer.learning_rate=0.1
//   psctl run --worker_binary=examples/stages --stages=3 --job=examples/mnist.textproto

#include <torch/torch.h>

#include "torchps/train.h"

namespace nn = torch::nn;

// Layers 784-256-640-256-10. Each stage contains at most 38 % of the parameters.
torchps::Stages Net() {
  const nn::Sequential first(nn::Flatten(), nn::Linear(784, 256), nn::ReLU());
  const nn::Sequential second(nn::Linear(256, 640), nn::ReLU());
  const nn::Sequential third(nn::Linear(640, 256), nn::ReLU(), nn::Linear(256, 10));
  return {first, second, third};
}

int main(int argc, char** argv) {
  return torchps::TrainMain(argc, argv, [](const torchps::JobSpec& job) {
    return torchps::Task{Net(), torchps::CrossEntropy(), torchps::OpenData(job)};
  });
}

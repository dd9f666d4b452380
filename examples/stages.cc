// A perceptron on handwritten digits that is cut into three stages, which compute at once with
// parts of a batch: on three devices of one process, or in three processes.
//
//   examples/stages --local --device=cpu,cpu,cpu --set optimizer.learning_rate=0.1
//   psctl run --worker_binary=examples/stages --stages=3 --job=examples/mnist.textproto

#include <torch/torch.h>

#include "program/train.h"

namespace nn = torch::nn;

// 784-256-640-256-10: no stage has more than 38 of 100 parameters.
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

// Trains a regression with two inputs, a custom metric and a custom hyperparameter: the area of
// rectangles.
//
//   examples/two_inputs --local --set training.epochs=20 --set hyperparameter.width=64
//                       --set optimizer.kind=adam --set optimizer.learning_rate=0.003

#include <torch/torch.h>

#include "torchps/train.h"

struct Area : torch::nn::Module {
  explicit Area(int64_t width) : first(2, width), last(width, 1) {
    register_module("first", first);
    register_module("last", last);
  }
  torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
    return last->forward(torch::tanh(first->forward(torch::cat({a, b}, 1))));
  }
  torch::nn::Linear first, last;
};

// Rectangles with sides between 0 and 1.
std::shared_ptr<torchps::Dataset> Rectangles(int64_t count) {
  const torch::Tensor a = torch::rand({count, 1});
  const torch::Tensor b = torch::rand({count, 1});
  return std::make_shared<torchps::TensorDataset>(a, a * b, std::vector<torch::Tensor>{b});
}

torchps::Metric::Part Off(const torchps::Pass& pass) {
  const torch::Tensor off = (pass.output() - pass.batch.target).abs();
  return {off.sum().item<double>(), static_cast<double>(off.numel())};
}

absl::StatusOr<torchps::Task> MakeTask(const torchps::JobSpec& job) {
  const absl::StatusOr<int64_t> width = torchps::Hyperparameter(job, "width", int64_t{32});
  if (!width.ok()) return width.status();
  torchps::Objective objective = torchps::MeanSquaredError();
  objective.metrics.push_back({"mean_error", Off, /*lower_is_better=*/true});
  const torchps::DataSource data{Rectangles(4000), Rectangles(500), "rectangles"};
  return torchps::Task{std::make_shared<Area>(*width), objective, data};
}

int main(int argc, char** argv) { return torchps::TrainMain(argc, argv, MakeTask); }

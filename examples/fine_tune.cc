// Fine-tuning: freezes the convolutional layers that mnist_torchps.cc trained, and trains a new
// head that classifies digits as odd or even.
//
//   examples/mnist_torchps --local --job=examples/mnist.textproto --dir=/tmp/digits
//   examples/fine_tune --local --set model.init_from=/tmp/digits/model.safetensors
//                      --set model.init_partial=true --set optimizer.learning_rate=0.05

#include <torch/torch.h>

#include "torchps/train.h"

struct Net : torch::nn::Module {
  Net() {
    for (torch::Tensor& weight : parameters()) weight.set_requires_grad(false);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1->forward(conv1->forward(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2->forward(conv2->forward(x))), 2);
    return head->forward(x.flatten(1));
  }
  // The frozen batch norms use their running statistics.
  void train(bool on) override {
    torch::nn::Module::train(on);
    norm1->eval();
    norm2->eval();
  }

  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(1, 16, 5))};
  torch::nn::BatchNorm2d norm1{register_module("norm1", torch::nn::BatchNorm2d(16))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(16, 32, 5))};
  torch::nn::BatchNorm2d norm2{register_module("norm2", torch::nn::BatchNorm2d(32))};
  torch::nn::Linear head{512, 2};
};

// Wraps a dataset of digits; the class is 1 for odd digits, else 0.
class Odd : public torchps::Dataset {
 public:
  explicit Odd(std::shared_ptr<const torchps::Dataset> digits) : digits_(std::move(digits)) {}
  int64_t size() const override { return digits_->size(); }
  absl::StatusOr<torchps::Batch> Get(absl::Span<const int64_t> indices) const override {
    absl::StatusOr<torchps::Batch> batch = digits_->Get(indices);
    if (batch.ok()) batch->target = batch->target.remainder(2);
    return batch;
  }

 private:
  const std::shared_ptr<const torchps::Dataset> digits_;
};

int main(int argc, char** argv) {
  return torchps::TrainMain(argc, argv,
                            [](const torchps::JobSpec& job) -> absl::StatusOr<torchps::Task> {
                              absl::StatusOr<torchps::DataSource> data = torchps::OpenData(job);
                              if (!data.ok()) return data.status();
                              data->train = std::make_shared<Odd>(data->train);
                              data->test = std::make_shared<Odd>(data->test);
                              auto net = std::make_shared<Net>();
                              net->train(true);
                              return torchps::Task{net, torchps::CrossEntropy(), *data};
                            });
}

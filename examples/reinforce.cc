// Runs REINFORCE (Williams 1992) in a custom training loop: a policy learns to walk to the end of a
// corridor with eight positions. The program generates data during training; an epoch is 640 walks.
//
//   examples/reinforce --local --set optimizer.kind=adam --set optimizer.learning_rate=0.02
//                      --set training.epochs=5

#include <torch/torch.h>

#include "torchps/session.h"

constexpr int64_t kPlaces = 8;
constexpr int kMaxSteps = 40;

struct Policy : torch::nn::Module {
  torch::nn::Linear choice{register_module("choice", torch::nn::Linear(kPlaces, 2))};

  // Returns the log probabilities of a step back and a step ahead.
  torch::Tensor forward(int64_t place) {
    return torch::log_softmax(choice->forward(torch::eye(kPlaces)[place]), 0);
  }
};

struct Walk {
  torch::Tensor log_probability = torch::zeros({});
  int steps = 0;  // fewer are better
};

Walk TakeWalk(Policy& policy) {
  Walk walk;
  for (int64_t place = 0; place < kPlaces - 1 && walk.steps < kMaxSteps; ++walk.steps) {
    const torch::Tensor choices = policy.forward(place);
    const auto chosen = choices.exp().multinomial(1).item<int64_t>();
    walk.log_probability = walk.log_probability + choices[chosen];
    place = std::max<int64_t>(0, place + (chosen == 1 ? 1 : -1));
  }
  return walk;
}

void Train(torchps::Session& session) {
  Policy policy;
  torchps::Session::Options options{/*samples=*/640, "walks through a corridor"};
  options.evaluate = [&] {
    double steps = 0;
    for (int i = 0; i < 100; ++i) steps += TakeWalk(policy).steps / 100.0;
    return torchps::Evaluation{100, steps, {}};
  };
  session.Join(policy, options);
  double usual = kMaxSteps;  // steps of a usual walk so far: the baseline
  while (session.Next()) {
    torch::Tensor loss = torch::zeros({});
    const auto walks = static_cast<double>(session.samples().size());
    for (size_t i = 0; i < session.samples().size(); ++i) {
      const Walk walk = TakeWalk(policy);
      loss = loss + walk.log_probability * ((walk.steps - usual) / walks);
      usual += 0.05 * (walk.steps - usual);
    }
    loss.backward();
    session.Push(loss);
  }
}

int main(int argc, char** argv) { return torchps::SessionMain(argc, argv, Train); }

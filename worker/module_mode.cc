#include "worker/module_mode.h"

#include <memory>

namespace torchps {
namespace {

void AddModes(const torch::nn::Module& module, std::vector<bool>* modes) {
  modes->push_back(module.is_training());
  for (const std::shared_ptr<torch::nn::Module>& child : module.children()) {
    AddModes(*child, modes);
  }
}

// Restores modes from `next` on. Outer modules come first, because train() also sets the layers
// inside.
void RestoreModes(torch::nn::Module& module, const std::vector<bool>& modes, size_t* next) {
  // A layer that was added in the meantime keeps the mode of the module around it.
  if (*next == modes.size()) return;
  const bool mode = modes[(*next)++];
  if (module.is_training() != mode) module.train(mode);
  for (const std::shared_ptr<torch::nn::Module>& child : module.children()) {
    RestoreModes(*child, modes, next);
  }
}

// Restores evaluation mode for the layers that were in it.
void RestoreEvaluation(torch::nn::Module& module, const std::vector<bool>& modes, size_t* next) {
  if (*next == modes.size()) return;
  if (!modes[(*next)++]) module.eval();
  for (const std::shared_ptr<torch::nn::Module>& child : module.children()) {
    RestoreEvaluation(*child, modes, next);
  }
}

}  // namespace

void BeginTraining(torch::nn::Module& module) {
  std::vector<bool> modes;
  AddModes(module, &modes);
  module.train();
  size_t next = 0;
  if (modes.front()) RestoreEvaluation(module, modes, &next);
}

EvaluationMode::EvaluationMode(torch::nn::Module& module) : module_(module) {
  AddModes(module_, &modes_);
  module_.eval();
}

EvaluationMode::~EvaluationMode() {
  size_t next = 0;
  RestoreModes(module_, modes_, &next);
}

}  // namespace torchps

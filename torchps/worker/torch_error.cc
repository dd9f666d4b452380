#include "torchps/worker/torch_error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace torchps {
namespace {

absl::Status Failed(absl::string_view what, absl::string_view message) {
  return absl::InternalError(
      absl::StrCat(what, " failed: ", message.substr(0, message.find('\n'))));
}

// Returns the demangled type of the current exception.
std::string NameOfThrown() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  // Thrown by code in another language.
  if (type == nullptr) return "an unknown type";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return name == nullptr ? type->name() : name.get();
}

}  // namespace

absl::Status TorchError(absl::string_view what, const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  return Failed(what, from_torch != nullptr ? from_torch->what_without_backtrace() : error.what());
}

absl::Status ThrownError(absl::string_view what) {
  try {
    throw;
  } catch (const std::exception& error) {
    return TorchError(what, error);
  } catch (const std::string& text) {
    return Failed(what, text);
  } catch (const char* text) {
    return Failed(what, text == nullptr ? "" : text);
  } catch (...) {
    return Failed(what, absl::StrCat("it threw a value of type ", NameOfThrown(),
                                     ", which is not a std::exception"));
  }
}

namespace {

void AddModes(const torch::nn::Module& module, std::vector<bool>* modes) {
  modes->push_back(module.is_training());
  for (const std::shared_ptr<torch::nn::Module>& child : module.children()) {
    AddModes(*child, modes);
  }
}

// Restores modes from `next` on. Sets each module before the layers inside it, because train() also
// sets those layers.
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

#pragma once

#include <c10/util/Exception.h>
#include <torch/types.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "torchps/data/dataset.h"

// Calls a module's forward() with one or several tensors, for any supported return type. A
// template, because torch::nn::Module itself declares no forward().

namespace torchps {
namespace call_forward_internal {

template <typename Net, typename Indices, typename = void>
struct Takes : std::false_type {};
template <typename Net, size_t... kIndex>
struct Takes<Net, std::index_sequence<kIndex...>,
             std::void_t<decltype(std::declval<Net&>().forward(
                 std::declval<std::vector<torch::Tensor>&>()[kIndex]...))>> : std::true_type {};

inline void Append(torch::Tensor output, std::vector<torch::Tensor>& outputs) {
  outputs.push_back(std::move(output));
}
inline void Append(std::vector<torch::Tensor> output, std::vector<torch::Tensor>& outputs) {
  outputs = std::move(output);
}
template <typename... Output>
void Append(std::tuple<Output...> output, std::vector<torch::Tensor>& outputs) {
  std::apply([&](auto&... each) { (Append(std::move(each), outputs), ...); }, output);
}
template <typename First, typename Second>
void Append(std::pair<First, Second> output, std::vector<torch::Tensor>& outputs) {
  Append(std::move(output.first), outputs);
  Append(std::move(output.second), outputs);
}

// If forward() takes as many tensors as there are inputs, calls it, sets `outputs` and returns
// true.
template <typename Net, size_t... kIndex>
bool Call(Net& net, std::vector<torch::Tensor>& inputs, std::vector<torch::Tensor>& outputs,
          std::index_sequence<kIndex...>) {
  if constexpr (Takes<Net, std::index_sequence<kIndex...>>::value) {
    if (inputs.size() != sizeof...(kIndex)) return false;
    Append(net.forward(inputs[kIndex]...), outputs);
    return true;
  } else {
    return false;
  }
}

}  // namespace call_forward_internal

// Calls net.forward() with each of the batch's one to six inputs as an argument, and returns the
// outputs. Throws forward()'s exceptions, and c10::Error if forward() takes another number of
// tensors or returns none.
template <typename Net>
std::vector<torch::Tensor> CallForward(Net& net, const Batch& batch) {
  namespace internal = call_forward_internal;
  static_assert(internal::Takes<Net, std::make_index_sequence<1>>::value ||
                    internal::Takes<Net, std::make_index_sequence<2>>::value ||
                    internal::Takes<Net, std::make_index_sequence<3>>::value ||
                    internal::Takes<Net, std::make_index_sequence<4>>::value ||
                    internal::Takes<Net, std::make_index_sequence<5>>::value ||
                    internal::Takes<Net, std::make_index_sequence<6>>::value,
                "a Task's module has a forward() that takes one to six tensors");
  std::vector<torch::Tensor> inputs = {batch.input};
  inputs.insert(inputs.end(), batch.more_inputs.begin(), batch.more_inputs.end());
  std::vector<torch::Tensor> outputs;
  const bool called = internal::Call(net, inputs, outputs, std::make_index_sequence<1>()) ||
                      internal::Call(net, inputs, outputs, std::make_index_sequence<2>()) ||
                      internal::Call(net, inputs, outputs, std::make_index_sequence<3>()) ||
                      internal::Call(net, inputs, outputs, std::make_index_sequence<4>()) ||
                      internal::Call(net, inputs, outputs, std::make_index_sequence<5>()) ||
                      internal::Call(net, inputs, outputs, std::make_index_sequence<6>());
  TORCH_CHECK(called, "the dataset returns ", inputs.size(),
              inputs.size() == 1 ? " input" : " inputs",
              ", but the module's forward() takes another number");
  TORCH_CHECK(!outputs.empty(), "the module's forward() returned no tensor");
  return outputs;
}

}  // namespace torchps

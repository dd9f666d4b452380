#pragma once

#include <vector>

// The order in which the stages of a model work on the parts of a batch: one forward, one backward
// (Narayanan et al. 2019, "PipeDream"; 2021, its flushed form in Megatron-LM). Free functions
// without state.

namespace torchps {

// What a stage does next: one pass with one micro-batch.
struct PipelineStep {
  bool forward = true;  // else backward
  int micro_batch = 0;
};

// All that stage `stage` of `stages` does with `micro_batches` micro-batches, in order: first as
// many forward passes as there are stages behind it, then backward and forward passes in turn, then
// the backward passes that are left. Micro-batches come in their order in both directions.
//
// A stage holds the activations of a micro-batch from its forward pass to its backward pass: of at
// most `stages - stage` micro-batches at a time, however many there are. Where all forward passes
// take the time f and all backward passes the time b, the whole takes
// (micro_batches + stages - 1) * (f + b): `stages - 1` of so many turns are lost to filling and
// draining.
//
// REQUIRES: 0 <= stage < stages, micro_batches >= 1.
std::vector<PipelineStep> OneForwardOneBackward(int stage, int stages, int micro_batches);

}  // namespace torchps
